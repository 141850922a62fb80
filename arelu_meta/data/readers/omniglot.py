"""`omniglot`: 1,623 characters of 50 alphabets, 20 drawings each (Lake, Salakhutdinov, Tenenbaum 2015).

    omniglot-py/images_{background,evaluation}.zip            read as they are, if they are there
    omniglot-py/images_{background,evaluation}/ALPHABET/CHARACTER/*.png

`omniglot/` and the root itself are looked into as well. Drawings are resized from 105x105 to 28x28 (Lanczos) and
inverted, so that ink is 255 and paper 0, as the few-shot literature does.
"""

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath

import torch
from PIL import Image, ImageChops
from torch import Tensor

from arelu_meta.data.files import checksums, data_root, tree_sha256
from arelu_meta.data.files.download import PublishedFile
from arelu_meta.data.files.image_files import read_image
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.readers import PublishedSet, local_path, unverified, verified
from arelu_meta.data.splits import Split, divide
from arelu_meta.errors import InputError
from arelu_meta.reading import check_inside, check_members, open_regular, parsing

IMAGE_SIZE = 28
MIRRORS = ("https://raw.githubusercontent.com/brendenlake/omniglot/master/python",)
OMNIGLOT = PublishedSet(
    name="omniglot",
    folders=("omniglot-py", "omniglot", "."),
    files=(
        PublishedFile("images_background.zip", "68d2efa1b9178cc56df9314c21c6e718", MIRRORS),
        PublishedFile("images_evaluation.zip", "6b91aef0f799c5bb55b94e3f2daec811", MIRRORS),
    ),
    substitute="glyphs",
)


def load_omniglot(*, root: str | Path | None = None, rotations: bool = False) -> ImageSet:
    """Read Omniglot: 964 `background` and 659 `evaluation` characters in the publisher's order, 20 of 1x28x28 each.

    The order is background before evaluation, and inside of each by alphabet and character name. With `rotations`
    each character turned by 90, 180 and 270 degrees (counter-clockwise) is a new class; classes 0..1622 stay the
    upright ones. `groups` numbers the upright character of an image, so `by_class` keeps it and its turns together.
    """
    folder = OMNIGLOT.obtain(data_root(root))
    paths = [path for file in OMNIGLOT.files if (path := local_path(folder, file)) is not None]
    images: list[Tensor] = []
    class_names: list[str] = []
    labels, subsets = [], {}
    for subset, path in zip(("background", "evaluation"), paths, strict=True):
        start = len(images)
        for character, drawing in _drawings(path):
            if not class_names or class_names[-1] != character:
                class_names.append(character)
            images.append(drawing)
            labels.append(len(class_names) - 1)
        subsets[subset] = torch.arange(start, len(images))
    upright = ImageSet(
        name="omniglot",
        images=torch.stack(images),
        labels=torch.tensor(labels),
        class_names=tuple(class_names),
        subsets=subsets,
        groups=torch.tensor(labels),
        group_names=tuple(class_names),
    )
    upright = _with_provenance(upright, paths)
    return with_rotations(upright) if rotations else upright


def with_rotations(upright: ImageSet) -> ImageSet:
    """Add each class turned by 90, 180 and 270 degrees as a new class; `groups` holds the upright class of an image."""
    turns, classes, count = range(4), len(upright.class_names), len(upright)
    subsets = {name: torch.cat([index + turn * count for turn in turns]) for name, index in upright.subsets.items()}
    suffixes = ("", "/rot090", "/rot180", "/rot270")
    return ImageSet(
        name=upright.name,
        images=torch.cat([torch.rot90(upright.tensor, turn, (2, 3)) for turn in turns]),
        labels=torch.cat([upright.labels + turn * classes for turn in turns]),
        class_names=tuple(f"{name}{suffix}" for suffix in suffixes for name in upright.class_names),
        subsets=subsets,
        groups=upright.labels.repeat(4),
        group_names=upright.class_names,
        provenance=upright.provenance,
    )


def omniglot_standard(images: ImageSet, *, validation_classes: int = 100) -> Split:
    """Train on the first 1,200 characters in the publisher's order and test on the other 423.

    Nothing is drawn at random. Turned characters go where their upright one goes. The split of Vinyals et al. (2016) is
    not offered: it is a list of characters that was published as a file and follows from no rule.

    Args:
        images: what `load_omniglot` returns.
        validation_classes: of the 1,200 the last so many are held back for validation: 1100..1199.

    Returns:
        The split, with `held_out` "classes".

    Raises:
        InputError: not the 1,623 characters of Omniglot, or nothing left to train on.
    """
    if images.groups is None or len(images.group_names) != 1623:
        raise InputError(f"{images.name} has {len(images.group_names)} characters, not Omniglot's 1623; use by_class")
    if not 0 < validation_classes < 1200:
        raise InputError(f"validation_classes {validation_classes} must leave some of the 1200 characters to train on")
    borders = {"train": (0, 1200 - validation_classes), "validation": (1200 - validation_classes, 1200)}
    borders["test"] = (1200, 1623)
    character = images.groups.cpu()
    indices = {
        subset: torch.nonzero((character >= start) & (character < end)).squeeze(1)
        for subset, (start, end) in borders.items()
    }
    return divide(images, indices, held_out="classes")


def _with_provenance(images: ImageSet, paths: list[Path]) -> ImageSet:
    zips = {path: checksums(path) for path in paths if path.is_file()}
    if len(zips) == len(paths):
        published = {file.name: file.md5 for file in OMNIGLOT.files}
        return verified(images, source=MIRRORS[0], read=zips, published=published)
    files = {path.name: sums.sha256 for path, sums in zips.items()}
    files |= {path.name: tree_sha256(path, path.glob("*/*/*.png")) for path in paths if path not in zips}
    reason = f"checksums are published for the zip files only, and {paths[0].parent} does not hold both"
    return unverified(images, source=MIRRORS[0], files=files, reason=reason)


def _drawings(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield `ALPHABET/CHARACTER` and the drawing (1, 28, 28) of each image, by alphabet, character and file name."""
    with parsing(path, remedy="delete it and load the set again"):
        if path.is_file():
            with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
                check_members(path, archive, packed=path.stat().st_size)
                members = [name for name in archive.namelist() if name.endswith(".png") and name.count("/") == 3]
                files = [(PurePosixPath(name).parts, f"{path}: {name}", archive.read(name)) for name in members]
        else:
            files = []
            for file in path.glob("*/*/*.png"):
                check_inside(file, path)
                with open_regular(file) as stream:
                    files.append((file.parts, str(file), stream.read()))
    if not files:
        raise InputError(f"{path} holds no ALPHABET/CHARACTER/*.png; delete it and load the set again")
    size = (IMAGE_SIZE, IMAGE_SIZE)
    for parts, name, content in sorted(files):
        yield (
            "/".join(parts[-3:-1]),
            read_image(
                BytesIO(content),
                name,
                lambda drawing: ImageChops.invert(drawing.convert("L").resize(size, Image.Resampling.LANCZOS)),
            ),
        )
