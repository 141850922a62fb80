"""`cifar_fs` and `fc100`: CIFAR-100 divided by class for few-shot learning, on the files of `cifar100`.

`cifar_fs` (Bertinetto et al. 2019, arXiv 1805.08136): 64 classes train, 16 validate, 20 test, drawn at random once.
`fc100` (Oreshkin et al. 2018, arXiv 1805.10123): 60, 20 and 20 classes by superclass (12, 4 and 4), so that what is
tested is far from what was trained on.

All 600 images of a class are used, those that CIFAR-100 trains on and those that it tests on. The lists were checked
against torchmeta's (tristandeleu/pytorch-meta, torchmeta/datasets/assets/cifar100) and, for fc100, its authors'
(ServiceNow/TADAM, datasets/create_dataset_cifar100.py). CIFAR-100 numbers its classes in alphabetical order.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.readers.cifar import CIFAR100, load_cifar100

CIFAR_FS = FC100 = CIFAR100  # whose files they are read from

SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
"""CIFAR-100's own, in the order of its coarse labels"""
CLASSES = tuple(sorted(name for names in SUPERCLASSES.values() for name in names.split()))
# What neither of these names, train.
CIFAR_FS_CLASSES = {
    "validation": """
        beaver beetle butterfly camel cattle crab crocodile flatfish lamp maple_tree motorcycle otter sea shark
        television tractor
    """,
    "test": """
        baby bed bicycle chimpanzee fox leopard man pickup_truck plain poppy rocket rose snail sweet_pepper table
        telephone wardrobe whale woman worm
    """,
}
FC100_SUPERCLASSES = {
    "validation": "large_carnivores large_omnivores_and_herbivores non-insect_invertebrates small_mammals",
    "test": "aquatic_mammals insects medium_mammals people",
}


def load_cifar_fs(*, root: str | Path | None = None) -> ImageSet:
    """Read CIFAR-FS: 60,000 images of 3x32x32, 64 classes `train`, 16 `validation`, 20 `test`."""
    return _divided("cifar_fs", {part: names.split() for part, names in CIFAR_FS_CLASSES.items()}, root)


def load_fc100(*, root: str | Path | None = None) -> ImageSet:
    """Read FC100: 60,000 images of 3x32x32, 60 classes `train`, 20 `validation`, 20 `test`; superclasses are groups."""
    held_out = {
        part: " ".join(SUPERCLASSES[superclass] for superclass in superclasses.split()).split()
        for part, superclasses in FC100_SUPERCLASSES.items()
    }
    images = _divided("fc100", held_out, root)
    superclass_of = {name: number for number, names in enumerate(SUPERCLASSES.values()) for name in names.split()}
    groups = torch.tensor([superclass_of[name] for name in CLASSES])[images.labels]
    return replace(images, groups=groups, group_names=tuple(SUPERCLASSES))


def _divided(name: str, held_out: Mapping[str, list[str]], root: str | Path | None) -> ImageSet:
    """CIFAR-100 with the images of some classes as `validation` and `test`, and those of the others as `train`."""
    images = load_cifar100(root=root)
    classes = {"train": [one for one in CLASSES if not any(one in names for names in held_out.values())], **held_out}
    subsets = {
        part: torch.isin(images.labels, torch.tensor([CLASSES.index(one) for one in names])).nonzero().squeeze(1)
        for part, names in classes.items()
    }
    return replace(images, name=name, class_names=CLASSES, subsets=subsets)
