"""Checksums: what was read, and whether it is what the publisher published."""

import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.errors import InputError

CHUNK = 1 << 20


class UnverifiedData(UserWarning):
    """Files are used that are not, or cannot be shown to be, the publisher's."""


@dataclass(frozen=True)
class Checksums:
    """MD5 (what the publishers of our sets give) and SHA-256 (what a run records) of the same bytes."""

    md5: str
    sha256: str


def checksums(path: Path) -> Checksums:
    """Read a file once and give its checksums."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                md5.update(chunk)
                sha256.update(chunk)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the file and its permissions") from error
    return Checksums(md5.hexdigest(), sha256.hexdigest())


def tree_sha256(folder: Path, files: Iterable[Path]) -> str:
    """SHA-256 over the relative names and the SHA-256 of many files, in the order of their names."""
    sha = hashlib.sha256()
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in files):
        sha.update(f"{name}\0{checksums(path).sha256}\n".encode())
    return sha.hexdigest()


def verified(
    images: ImageSet,
    *,
    source: str,
    found: Mapping[Path, Checksums],
    published: Mapping[str, frozenset[str]],
    missing: Sequence[str] = (),
) -> ImageSet:
    """Record where a set that was just read came from; warn once if its files are not the publisher's, or not all.

    `published` gives the MD5 sums that a file of that name may have; `missing` names files that are not there.
    """
    differing = [path.name for path, sums in found.items() if sums.md5 not in published.get(path.name, frozenset())]
    files = {path.name: sums.sha256 for path, sums in found.items()}
    faults = [f"no {_few(missing)}"] if missing else []
    if differing:
        faults.append(f"no published checksum fits {_few(differing)}")
    if faults:
        return unverified(images, source=source, files=files, reason="; ".join(faults))
    return replace(images, provenance=Provenance(source=source, verified=True, files=files))


def unverified(images: ImageSet, *, source: str, files: Mapping[str, str], reason: str) -> ImageSet:
    """Record that a set was used although it is not known to be the publisher's, and say so once."""
    warnings.warn(f"{images.name}: {reason}; the set is used and recorded as unverified", UnverifiedData, stacklevel=3)
    return replace(images, provenance=Provenance(source=source, verified=False, files=files))


def _few(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
