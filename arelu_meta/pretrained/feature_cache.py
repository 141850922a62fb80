"""Features that were computed before, by network and image: one SQLite file that several processes may use at once.

It is `features.db` in the cache folder (ARELU_META_CACHE). It is never needed: a file that is damaged or cannot be
written only costs the time to compute again. Each row carries the digest of its numbers and is looked at before use;
two of those found are computed again, so that a network whose code has changed is not answered by what it was. Beyond
`MOST_BYTES` the rows that were not used for longest are dropped.
"""

import contextlib
import hashlib
import sqlite3
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from arelu_meta.console import progress
from arelu_meta.data.files import cache_folder
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.pretrained.assembly import fit_to_inputs

FILE = "features.db"
AT_ONCE = 32  # images
COMPARED = 2  # images of those found that are computed again
ROUNDING = 1e-3  # of the largest feature: other threads and batches add up in another order
MOST_BYTES = 250_000_000  # of numbers; with digests and pages the file is up to twice as large
GENERATION = 1  # to be raised when the same network and image give other features
_DAMAGED = ("malformed", "not a database", "no such column", " columns")  # a table of another shape is no use either
_TABLE = """
CREATE TABLE IF NOT EXISTS features (
    network TEXT, image TEXT, numbers BLOB, digest BLOB, used REAL, PRIMARY KEY (network, image)
) WITHOUT ROWID
"""


def network_key(network: nn.Module, *settings: object) -> str:
    """Digest of a network's tensors and layers, and of all else that decides on its features, such as the inputs."""
    sha = hashlib.sha256(repr((GENERATION, torch.__version__, network, *settings)).encode())
    for name, value in sorted(network.state_dict().items()):
        sha.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        sha.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def image_keys(images: ImageSet) -> list[str]:
    """Digest of every image as it was read, before it is resized."""
    head = f"{tuple(images.images.shape[1:])}".encode()
    return [hashlib.sha256(head + image.contiguous().numpy().tobytes()).hexdigest() for image in images.images.cpu()]


def cached_features(
    network: nn.Module, images: ImageSet, inputs: Inputs, *, name: object, device: torch.device, bar: progress.Bar
) -> tuple[Tensor, int]:
    """Give the features of images, of those alone that are not in the cache by running the network.

    Args:
        network: gives features (N, d), in evaluation mode, on any device
        images: as they were read
        inputs: what images the network takes, and how others are brought to that
        name: name and options of the network: its tensors and layers alone do not tell all that it computes
        device: where it runs
        bar: shows the progress

    Returns:
        Features (N, d) on the CPU, and how many of them were computed.

    Raises:
        InputError: an image with features that are not finite.
    """
    key, keys = network_key(network, inputs, name), image_keys(images)
    found = read_features(key, keys)
    network = network.to(device).eval()

    @torch.no_grad()
    def compute(numbers: Tensor) -> Tensor:
        fitted = fit_to_inputs(images.subset(numbers), inputs, resize=inputs.resize)
        vectors = network(fitted.pixels(torch.arange(len(numbers), device=fitted.device)).to(device)).cpu()
        broken = numbers[~vectors.isfinite().all(1)]
        if len(broken):
            raise InputError(
                f"image {broken[0]} of {images.name} has features that are not finite; check the network's weights"
            )
        return vectors

    known = [number for number, image in enumerate(keys) if image in found][:COMPARED]
    if known and not _same(compute(torch.tensor(known)), [found[keys[number]] for number in known]):
        forget_features(key)
        found = {}
    missing = [number for number, image in enumerate(keys) if image not in found]
    chunks = torch.tensor(missing, dtype=torch.int64).split(AT_ONCE) if missing else ()
    with bar("features", len(chunks)) as advance:
        for done, chunk in enumerate(chunks, start=1):
            vectors = compute(chunk)
            new = {keys[number]: vector for number, vector in zip(chunk.tolist(), vectors, strict=True)}
            write_features(key, new)
            found.update(new)
            advance(f"{min(done * AT_ONCE, len(missing))} of {len(missing)} images")
    return torch.stack([found[image] for image in keys]), len(missing)


def _same(new: Tensor, old: Sequence[Tensor]) -> bool:
    """Whether features are what they were, but for rounding."""
    if any(vector.shape != new.shape[1:] for vector in old):
        return False
    before = torch.stack(list(old))
    return bool((new - before).abs().max() <= ROUNDING * before.abs().max())


def forget_features(network: str) -> None:
    """Drop all rows of a network."""
    with contextlib.suppress(sqlite3.Error, OSError, UnicodeDecodeError), _opened() as connection:
        connection.execute("DELETE FROM features WHERE network = ?", (network,))


def read_features(network: str, keys: Sequence[str]) -> dict[str, Tensor]:
    """Read the features that are there, by image; what does not match its digest is left out."""
    found: dict[str, Tensor] = {}
    with contextlib.suppress(sqlite3.Error, OSError, UnicodeDecodeError), _opened() as connection:
        for key in keys:
            query = "SELECT numbers, digest FROM features WHERE network = ? AND image = ?"
            for numbers, digest in connection.execute(query, (network, key)):
                if isinstance(numbers, bytes) and _digest(network, key, numbers) == digest:
                    found[key] = torch.from_numpy(np.frombuffer(numbers, np.float32).copy())
        touch = "UPDATE features SET used = ? WHERE network = ? AND image = ?"
        connection.executemany(touch, [(time.time(), network, key) for key in found])
    return found


def write_features(network: str, features: dict[str, Tensor]) -> None:
    """Add features in one transaction, and drop the oldest beyond the bound."""
    rows = []
    for image, vector in features.items():
        numbers = vector.detach().cpu().float().contiguous().numpy().tobytes()
        rows.append((network, image, numbers, _digest(network, image, numbers), time.time()))
    try:
        with _opened() as connection:
            connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?, ?, ?)", rows)
            (total,) = connection.execute("SELECT coalesce(sum(length(numbers)), 0) FROM features").fetchone()
            if total > MOST_BYTES:
                oldest = (
                    "SELECT network, image FROM (SELECT network, image, sum(length(numbers)) OVER "
                    "(ORDER BY used DESC, network, image) AS kept FROM features) WHERE kept > ?"
                )
                connection.execute(f"DELETE FROM features WHERE (network, image) IN ({oldest})", (MOST_BYTES // 2,))  # noqa: S608
    except (sqlite3.DatabaseError, UnicodeDecodeError, TypeError) as error:
        if any(sign in str(error) for sign in _DAMAGED) or not isinstance(error, sqlite3.Error):
            with contextlib.suppress(OSError):
                (cache_folder() / FILE).unlink(missing_ok=True)
    except OSError:
        pass  # a folder that cannot be written


def _digest(network: str, image: str, numbers: bytes) -> bytes:
    """Digest of a row: of its numbers and of what they are said to belong to."""
    return hashlib.sha256(f"{network}{image}".encode() + numbers).digest()


@contextlib.contextmanager
def _opened() -> Iterator[sqlite3.Connection]:
    """Open the file, commit at the end, or roll back; another process that writes is waited for."""
    path = cache_folder() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=30)
    try:
        with connection:
            connection.execute(_TABLE)
            yield connection
    finally:
        connection.close()
