"""Whether code that a file names may be imported: the model, run or task of a stranger is data until one trusts it.

ARELU_META_TRUST   packages or modules whose code files may name, separated by commas
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from arelu_meta.errors import InputError

TRUST = "ARELU_META_TRUST"
DATA_KEYS = frozenset({"dataset", "source", "target"})
CODE_KEYS = DATA_KEYS | {"backbone", "activation", "method", "model", "base"}
TORCHVISION = "torchvision:"  # before the name of a class in torchvision.datasets: a set, and no place of code
_TRUSTED: ContextVar[tuple[str, ...]] = ContextVar("packages whose code files may name", default=())
_UNTRUSTED: ContextVar[tuple[str, tuple[str, ...]] | None] = ContextVar("file whose names are read", default=None)


@contextmanager
def trusting(packages: str) -> Iterator[None]:
    """Let files name code of some packages, separated by commas, for the time being."""
    token = _TRUSTED.set((*_TRUSTED.get(), *filter(None, packages.split(","))))
    try:
        yield
    finally:
        _TRUSTED.reset(token)


@contextmanager
def registered_only(source: str, trust: Iterable[str] = ()) -> Iterator[None]:
    """Refuse code that a file names, for the time being: names of registries stand for code that was installed here.

    Args:
        source: the file or model whose names are read, for the message
        trust: packages or modules whose code it may name; those of the variable `ARELU_META_TRUST` besides

    >>> from arelu_meta import activations
    >>> with registered_only("model/", trust=["torch.nn"]):
    ...     activations.build("torch.nn:ReLU")
    ReLU()
    """
    token = _UNTRUSTED.set((source, (*trust, *_TRUSTED.get())))
    try:
        yield
    finally:
        _UNTRUSTED.reset(token)


def check_values(values: object, source: str, *, key: str = "") -> None:
    """Refuse the settings of a file that name code which is not trusted, before anything is built of them.

    Args:
        values: plain values; under the keys of `CODE_KEYS` a word with a colon is a place of code, also in brackets, as
            the base of `elsa(mine:Squareplus)`.
        source: the file, for the message.
        key: the key that the values stand under.
    """
    if isinstance(values, dict):
        for name, value in values.items():
            check_values(value, source, key=str(name).rpartition(".")[2])
    elif isinstance(values, list):
        for value in values:
            check_values(value, source, key=key)
    elif isinstance(values, str) and key in CODE_KEYS and not (key in DATA_KEYS and values.startswith(TORCHVISION)):
        for word in re.split(r"[()]", values):
            if is_target(word):
                with registered_only(source):
                    check_trusted(word)


def is_target(given: object) -> bool:
    """Whether something has the form `package.module:attribute`.

    >>> is_target("torch.nn:ReLU"), is_target("relu"), is_target("C:/images")
    (True, False, False)
    """
    module, _, attribute = str(given).partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def check_trusted(target: str) -> None:
    """Refuse `package.module:attribute` where a file names it and the caller does not trust its package."""
    place = _UNTRUSTED.get()
    if place is None:
        return
    source, trust = place
    module = target.partition(":")[0]
    package = module.partition(".")[0]
    named = [*trust, *os.environ.get(TRUST, "").split(",")]
    if not any(name and f"{module}.".startswith(f"{name.strip()}.") for name in named):
        raise InputError(
            f"{source} names code, {target!r}, which is not run; to trust it, set "
            f'`trust=("{package}",)`, or {TRUST}={package}'
        )
