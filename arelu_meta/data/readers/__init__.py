"""Readers of published sets, each in its publisher's format; here what they share: find, download, verify."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from arelu_meta.data.files import Checksums
from arelu_meta.data.files.download import PublishedFile, download_missing
from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.errors import InputError

PACKED = (".gz", ".zip")


class UnverifiedData(UserWarning):
    """Files are used that are not, or cannot be shown to be, the publisher's."""


@dataclass(frozen=True)
class PublishedSet:
    """The files of a published set and the folders below the data root that may hold them.

    `folders`: the first is where downloads go. `substitute`: the bundled set that an error suggests instead.
    A packed file (.gz, .zip) may also be there unpacked, under its name without the ending.
    """

    name: str
    folders: tuple[str, ...]
    files: tuple[PublishedFile, ...]
    substitute: str

    def folder(self, root: Path) -> Path | None:
        """The first of the folders that holds a file of the set."""
        candidates = (root / folder for folder in self.folders)
        return next((folder for folder in candidates if len(self.missing(folder)) < len(self.files)), None)

    def missing(self, folder: Path) -> list[PublishedFile]:
        """Files that are in a folder neither packed nor unpacked."""
        return [file for file in self.files if local_path(folder, file) is None]

    def is_local(self, root: Path) -> bool:
        """Whether the set can be read without a download."""
        folder = self.folder(root)
        return folder is not None and not self.missing(folder)

    def obtain(self, root: Path) -> Path:
        """Download what is missing and return the folder of the set."""
        folder = self.folder(root) or root / self.folders[0]
        download_missing(self.name, self.missing(folder), folder, substitute=self.substitute)
        return folder


def local_path(folder: Path, file: PublishedFile) -> Path | None:
    """Path of a file in a folder: packed if it is there so, for that is what the publisher gives a checksum of."""
    path = folder / file.name
    unpacked = path.with_suffix("") if path.suffix in PACKED else path
    return next((candidate for candidate in (path, unpacked) if candidate.exists()), None)


def concatenated(
    name: str, subsets: Mapping[str, Sequence[tuple[Tensor, Tensor]]], class_names: tuple[str, ...]
) -> ImageSet:
    """Join the files of each subset, images (n, C, H, W) and labels (n,); a subset without files is left out."""
    indices, start = {}, 0
    for subset, files in subsets.items():
        end = start + sum(len(labels) for _, labels in files)
        if files:
            indices[subset] = torch.arange(start, end)
        start = end
    images, labels = zip(*(file for files in subsets.values() for file in files), strict=True)
    sizes = {tuple(part.shape[1:]) for part in images}
    if len(sizes) > 1:
        named = " and ".join("x".join(map(str, size)) for size in sorted(sizes))
        raise InputError(f"{name}: its files hold images of {named}; replace those that are not the publisher's")
    return ImageSet(name, torch.cat(images), torch.cat(labels), class_names, subsets=indices)


def verified(
    images: ImageSet,
    *,
    source: str,
    read: Mapping[Path, Checksums],
    published: Mapping[str, str],
    missing: Sequence[str] = (),
) -> ImageSet:
    """Record where a set that was just read came from; warn once if its files are not the publisher's, or not all.

    `published` maps file names to MD5 sums; `missing` names files that are not there.
    """
    differing = [path.name for path, sums in read.items() if sums.md5 != published.get(path.name)]
    files = {path.name: sums.sha256 for path, sums in read.items()}
    reasons = [
        f"{reason} {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
        for reason, names in (("no", missing), ("no published checksum fits", differing))
        if names
    ]
    if reasons:
        return unverified(images, source=source, files=files, reason="; ".join(reasons))
    return replace(images, provenance=Provenance(source=source, verified=True, files=files))


def unverified(images: ImageSet, *, source: str, files: Mapping[str, str], reason: str) -> ImageSet:
    """Record that a set was used although it is not known to be the publisher's, and warn once."""
    warnings.warn(f"{images.name}: {reason}; the set is used and recorded as unverified", UnverifiedData, stacklevel=3)
    return replace(images, provenance=Provenance(source=source, verified=False, files=files))
