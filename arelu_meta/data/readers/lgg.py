"""`lgg`: brain MRI slices of lower-grade glioma patients with masks of the abnormality (Buda, Saha, Mazurowski 2019).

    kaggle_3m/PATIENT/PATIENT_SLICE.tif and PATIENT_SLICE_mask.tif

`lgg-mri-segmentation/kaggle_3m/`, `lgg/` and the root itself are looked into as well. The publisher's page
(kaggle.com/datasets/mateuszbuda/lgg-mri-segmentation) asks for a login and gives no checksums, so nothing is downloaded
and the set is always recorded as unverified.
"""

import re
from pathlib import Path

import torch

from arelu_meta.data.files import data_root, tree_sha256
from arelu_meta.data.files.image_files import read_image
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.readers import PublishedSet, unverified
from arelu_meta.errors import InputError

SOURCE = "https://www.kaggle.com/datasets/mateuszbuda/lgg-mri-segmentation"
MASK = "_mask.tif"


class LggSet(PublishedSet):
    """Folders of patients; their files have no published checksums."""

    def folder(self, root: Path) -> Path | None:
        """The first of the folders that holds the masks of a patient."""
        return next((root / folder for folder in self.folders if any((root / folder).glob(f"*/*{MASK}"))), None)


LGG = LggSet("lgg", ("kaggle_3m", "lgg-mri-segmentation/kaggle_3m", "lgg", "."), files=(), substitute="phantom")


def load_lgg(*, root: str | Path | None = None) -> ImageSet:
    """Read LGG MRI: slices of 3x256x256, `masks` of 0 and 1, `groups` by patient, labels by whether one is marked."""
    root = data_root(root)
    folder = LGG.folder(root)
    if folder is None:
        raise InputError(
            f"lgg: no PATIENT/*{MASK} below {root}; download kaggle_3m from {SOURCE} and put it into {root}, "
            f"or use the bundled {LGG.substitute!r}, which needs no download"
        )
    pairs = [pair for patient in sorted(folder.iterdir()) if patient.is_dir() for pair in _pairs(patient)]
    images, masks = _read(pairs)
    patients = sorted({image.parent.name for image, _ in pairs})
    number = {patient: index for index, patient in enumerate(patients)}
    read = ImageSet(
        name="lgg",
        images=images,
        labels=masks.flatten(1).any(1).long(),
        class_names=("no tumour", "tumour"),
        masks=masks,
        groups=torch.tensor([number[image.parent.name] for image, _ in pairs]),
        group_names=tuple(patients),
    )
    files = {folder.name: tree_sha256(folder, (path for pair in pairs for path in pair))}
    reason = f"no checksums are published ({len(patients)} of 110 patients found)"
    return unverified(read, source=SOURCE, files=files, reason=reason)


def _pairs(patient: Path) -> list[tuple[Path, Path]]:
    """Images with their masks, by slice number (not by name: slice 10 follows 9)."""
    files = {path.name: path for path in patient.glob("*.tif")}
    images = [name for name in files if not name.endswith(MASK)]
    expected = {name.removesuffix(".tif") + MASK for name in images}
    if images and len(images) == len(files):
        raise InputError(
            f"{patient} has {len(images)} slices and not one mask (*{MASK}); copy its masks too, or move it elsewhere"
        )
    alone = sorted(expected.symmetric_difference(files.keys() - set(images)))
    if alone:
        raise InputError(f"{patient}: {alone[0]} and its image are not both there; copy the patient's folder again")
    images.sort(key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)])
    return [(files[name], files[name.removesuffix(".tif") + MASK]) for name in images]


def _read(pairs: list[tuple[Path, Path]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode slices to (N, 3, H, W) and masks to (N, 1, H, W) of 0 and 1; all must have the size of the first."""
    height, width = read_image(pairs[0][0], str(pairs[0][0]), lambda image: image.convert("L")).shape[1:]
    images = torch.empty(len(pairs), 3, height, width, dtype=torch.uint8)
    masks = torch.empty(len(pairs), 1, height, width, dtype=torch.uint8)
    for row, (image_path, mask_path) in enumerate(pairs):
        x = read_image(image_path, str(image_path), lambda image: image.convert("RGB"))
        y = read_image(mask_path, str(mask_path), lambda image: image.convert("L"))
        if x.shape[1:] != (height, width) or y.shape[1:] != (height, width):
            size, mask_size = ("x".join(map(str, decoded.shape[1:])) for decoded in (x, y))
            raise InputError(
                f"{image_path} is {size} and its mask {mask_size}, but the first slice is {height}x{width}; "
                f"all must be of one size, so copy the patient's folder again"
            )
        images[row], masks[row] = x, y > 127
    return images, masks
