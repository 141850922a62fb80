"""What a pretrained network gave before: features by image, and its traced graph; for several processes at once.

It is the SQLite file `features.db` in the cache folder (ARELU_META_CACHE). It is never needed: a file that is damaged
or cannot be written only costs the time to compute again. Each row carries the digest of its content and is looked at
before use. A network whose code has changed is not answered by what it was: its features of noise, and of two of the
images that were found, are computed again and compared. Beyond `MOST_BYTES` the rows that were not used for longest are
dropped.
"""

import contextlib
import hashlib
import inspect
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from arelu_meta.console import progress
from arelu_meta.data.files import cache_folder
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.pretrained.assembly import fit_to_inputs, noise

FILE = "features.db"
AT_ONCE = 32  # images
NOISE = "noise"  # the row of the features of two images of noise
COMPARED = 2  # images of those found that are computed again
ROUNDING = 1e-3  # of the largest feature: other threads and batches add up in another order
MOST_BYTES = 250_000_000  # of content; with digests and pages the file is up to twice as large
GENERATION = 1  # to be raised when the same network and image give other features, or are traced in another way
_DAMAGED = ("malformed", "not a database", "no such column", " columns")  # a table of another shape is no use either
_TABLE = """
CREATE TABLE IF NOT EXISTS features (
    network TEXT, image TEXT, numbers BLOB, digest BLOB, used REAL, PRIMARY KEY (network, image)
) WITHOUT ROWID
"""

_DROP_OLDEST = """
DELETE FROM features WHERE (network, image) IN (
    SELECT network, image FROM (
        SELECT network, image, sum(length(numbers)) OVER (ORDER BY image != ?, used DESC, network, image) AS kept
        FROM features
    ) WHERE kept > ?
)
"""


class CachedFeatures(NamedTuple):
    """Features (N, d) on the CPU, of how many images they were computed now, and the network's key in the cache."""

    features: Tensor
    computed: int
    key: str


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
    return [
        hashlib.sha256(head + image.contiguous().numpy().tobytes()).hexdigest()
        for images_at_once in images.image_chunks()
        for image in images_at_once.cpu()
    ]


def cached_features(
    network: nn.Module, images: ImageSet, inputs: Inputs, *, name: object, device: torch.device, bar: progress.Bar
) -> CachedFeatures:
    """Give the features of images, of those alone that are not in the cache by running the network.

    Args:
        network: gives features (N, d), in evaluation mode, on any device
        images: as they were read
        inputs: what images the network takes, and how others are brought to that
        name: name and options of the network: its tensors and layers alone do not tell all that it computes
        device: where it runs
        bar: shows the progress

    Raises:
        InputError: an image with features that are not finite.
    """
    key, keys = network_key(network, inputs, name), image_keys(images)
    network = network.to(device).eval()
    found = read_features(key, keys) if _is_as_it_was(network, key, noise(inputs, 2).to(device)) else {}

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
    return CachedFeatures(torch.stack([found[image] for image in keys]), len(missing), key)


@torch.no_grad()
def _is_as_it_was(network: nn.Module, key: str, x: Tensor) -> bool:
    """Whether a network gives the features of noise that it gave before; if not, all of its rows are dropped."""
    features = network(x).cpu().flatten().unsqueeze(0)
    before = read_features(key, [NOISE])
    if before and _same(features, list(before.values())):
        return True
    forget_features(key)
    write_features(key, {NOISE: features[0]})
    return False


def _same(new: Tensor, old: Sequence[Tensor]) -> bool:
    """Whether features are what they were, but for rounding."""
    if any(vector.shape != new.shape[1:] for vector in old):
        return False
    before = torch.stack(list(old))
    most = float(before.abs().nan_to_num().max())
    return torch.allclose(new, before, rtol=0, atol=ROUNDING * most, equal_nan=True)  # noise may be out of its range


def forget_features(network: str) -> None:
    """Drop all rows of a network."""
    with contextlib.suppress(sqlite3.Error, OSError, UnicodeDecodeError), _opened() as connection:
        connection.execute("DELETE FROM features WHERE network = ?", (network,))


@dataclass(frozen=True, eq=False)
class CachedGraph:
    """The traced graph of a network in the cache with a head, without their tensors, for `Tracker.log_network`.

    It is found again by the network's key and by the head's code, settings and shapes. To be used after
    `cached_features`, which drops the rows of a network that has changed.
    """

    network: str
    head: nn.Module

    @property
    def row(self) -> str:
        """What it is called among the rows of the network."""
        code = inspect.getsource(inspect.getmodule(type(self.head)) or type(self.head))
        settings = {name: value for name, value in vars(self.head).items() if not name.startswith("_")}
        tensors = {name: (value.dtype, tuple(value.shape)) for name, value in self.head.state_dict().items()}
        return "graph " + hashlib.sha256(repr((code, self.head, settings, tensors)).encode()).hexdigest()

    def read(self) -> bytes:
        """Give it, or nothing."""
        return read_rows(self.network, [self.row]).get(self.row, b"")

    def write(self, stripped: bytes) -> None:
        """Keep it."""
        write_rows(self.network, {self.row: stripped})


def read_features(network: str, images: Sequence[str]) -> dict[str, Tensor]:
    """Read the features that are there, by image."""
    rows = read_rows(network, images)
    return {image: torch.from_numpy(np.frombuffer(numbers, np.float32).copy()) for image, numbers in rows.items()}


def write_features(network: str, features: Mapping[str, Tensor]) -> None:
    """Add features, by image."""
    arrays = {image: vector.detach().cpu().float().contiguous().numpy() for image, vector in features.items()}
    write_rows(network, {image: numbers.tobytes() for image, numbers in arrays.items()})


def read_rows(network: str, names: Sequence[str]) -> dict[str, bytes]:
    """Read the rows that are there; what does not match its digest is left out."""
    found: dict[str, bytes] = {}
    with contextlib.suppress(sqlite3.Error, OSError, UnicodeDecodeError), _opened() as connection:
        for name in names:
            query = "SELECT numbers, digest FROM features WHERE network = ? AND image = ?"
            for content, digest in connection.execute(query, (network, name)):
                if isinstance(content, bytes) and _digest(network, name, content) == digest:
                    found[name] = content
        touch = "UPDATE features SET used = ? WHERE network = ? AND image = ?"
        connection.executemany(touch, [(time.time(), network, name) for name in found])
    return found


def write_rows(network: str, contents: Mapping[str, bytes]) -> None:
    """Add rows in one transaction, and drop the oldest beyond the bound."""
    now = time.time()
    rows = [(network, name, content, _digest(network, name, content), now) for name, content in contents.items()]
    for _ in range(2):
        try:
            with _opened() as connection:
                connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?, ?, ?)", rows)
                (total,) = connection.execute("SELECT coalesce(sum(length(numbers)), 0) FROM features").fetchone()
                if total > MOST_BYTES:
                    connection.execute(_DROP_OLDEST, (NOISE, MOST_BYTES // 2))
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError, TypeError) as error:
            if isinstance(error, sqlite3.Error) and not any(sign in str(error) for sign in _DAMAGED):
                return
            with contextlib.suppress(OSError):
                (cache_folder() / FILE).unlink(missing_ok=True)
        except OSError:  # a folder that cannot be written
            return


def _digest(network: str, name: str, content: bytes) -> bytes:
    """Digest of a row: of its content and of what it is said to belong to."""
    return hashlib.sha256(f"{network}{name}".encode() + content).digest()


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
