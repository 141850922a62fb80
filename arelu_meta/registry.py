"""Strict registries of named parts: explicit entries, loaded when first used, no scanning.

An entry names its implementation as `package.module:attribute`, so that listing a registry imports nothing heavy.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from arelu_meta.errors import InputError, unknown


@dataclass(frozen=True)
class Entry:
    """A named part: where its implementation is, and one line on what it is."""

    name: str
    target: str | Callable[..., Any]
    """the implementation, or its place as package.module:attribute, imported when it is first used"""
    summary: str = ""

    def load(self) -> Callable[..., Any]:
        """Import the implementation."""
        return self.target if callable(self.target) else load_attribute(self.target)


EntryT = TypeVar("EntryT", bound=Entry)


class Registry(Generic[EntryT]):
    """Entries by name, in the order of registration. A second entry of the same name and an unknown name are errors.

    Args:
        kind: what the entries are, in one word for messages

    >>> shapes = Registry[Entry]("shape")
    >>> shapes.add(Entry("square", "builtins:int"))
    >>> shapes["squair"]
    Traceback (most recent call last):
    arelu_meta.errors.InputError: unknown shape 'squair'; did you mean 'square'?
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, EntryT] = {}

    def add(self, *entries: EntryT) -> None:
        """Register entries, each under its own name."""
        for entry in entries:
            if entry.name in self._entries:
                raise InputError(f"{self.kind} {entry.name!r} is registered already; choose another name")
            self._entries[entry.name] = entry

    def remove(self, name: str) -> None:
        """Forget an entry."""
        del self._entries[self[name].name]

    def names(self) -> list[str]:
        """Give the names in the order of registration."""
        return list(self._entries)

    def __getitem__(self, name: str) -> EntryT:
        if name not in self._entries:
            raise unknown(self.kind, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[EntryT]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def load_attribute(target: str) -> Any:
    """Import what a string names.

    Args:
        target: `package.module:attribute`, or `package.module:Class.method`

    Raises:
        InputError: the string has another form, or the module or the attribute does not exist.

    >>> load_attribute("math:sqrt")(9)
    3.0
    """
    module_name, _, attribute = target.partition(":")
    if not attribute:
        raise InputError(f"{target!r} is not of the form package.module:attribute")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(f"cannot import {module_name!r} for {target!r}: {error}") from error
    owner: Any = module
    for name in attribute.split("."):
        if not hasattr(owner, name):
            place = module_name if owner is module else owner.__name__
            raise unknown(f"attribute of {place}", name, dir(owner))
        owner = getattr(owner, name)
    return owner
