"""Strict registries of named parts: explicit entries and entry points of other packages, loaded when first used.

An entry names its implementation as `package.module:attribute`, so that listing a registry imports nothing heavy.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from arelu_meta.errors import InputError, first_line, unknown
from arelu_meta.trust import check_trusted, is_target

EVERYWHERE = ("torch", "arelu_meta")  # packages that are there wherever a stored model is loaded


@dataclass(frozen=True)
class Entry:
    """A named part: where its implementation is, and one line on what it is."""

    name: str
    """what it is asked for by"""
    target: str | Callable[..., Any]
    """the implementation, or its place as package.module:attribute, imported when it is first used"""
    summary: str = ""
    """one line on what it is, for lists"""
    origin: str = field(default="", kw_only=True)
    """the distribution and its version, where it is an entry point of another package"""

    @property
    def own_code(self) -> str:
        """Place of an implementation that other machines need not have: neither ours nor torch's; else empty."""
        if not isinstance(self.target, str):
            name = getattr(self.target, "__qualname__", self.name)
            return f"{getattr(self.target, '__module__', '?')}:{name}"
        return "" if self.target.partition(":")[0].partition(".")[0] in EVERYWHERE and not self.origin else self.target

    def load(self) -> Callable[..., Any]:
        """Import the implementation."""
        try:
            loaded = load_attribute(self.target) if isinstance(self.target, str) else self.target
        except InputError as error:
            if not self.origin:
                raise
            raise InputError(f"plug-in {self.name!r} of {self.origin}: {error}") from error
        if not callable(loaded):
            raise InputError(f"{self.target} is a {type(loaded).__name__}, not a class or a function; name one")
        return loaded


EntryT = TypeVar("EntryT", bound=Entry)


class Registry(Generic[EntryT]):
    """Entries by name, in the order of registration. A second entry of the same name and an unknown name are errors.

    Entry points of installed packages come after them, under names that are free: what a name means here does not
    change because a package is installed. Two packages with one name are an error where the name is used.

    Args:
        kind: what the entries are, in one word for messages
        entry: makes the entry of a name and a target, for what is registered by others
        group: group of the entry points that belong here; empty: none do

    >>> shapes = Registry[Entry]("shape")
    >>> shapes.add(Entry("square", "builtins:int"))
    >>> shapes["squair"]
    Traceback (most recent call last):
    arelu_meta.errors.InputError: unknown shape 'squair'; did you mean 'square'?
    """

    def __init__(self, kind: str, entry: Callable[..., EntryT] | None = None, *, group: str = "") -> None:
        self.kind, self.group, self._make = kind, group, entry
        self._entries: dict[str, EntryT] = {}
        if group:
            PLUGGABLE.append(self)

    def add(self, *entries: EntryT) -> None:
        """Register entries, each under its own name."""
        for entry in entries:
            if entry.name in self._entries:
                raise InputError(f"{self.kind} {entry.name!r} is registered already; choose another name")
            target: Any = entry.target  # a decorator can be put before anything
            if not isinstance(target, str) and not callable(target):
                given = type(target).__name__
                raise InputError(f"{self.kind} {entry.name!r} is a {given}; register a class or a function")
            self._entries[entry.name] = entry

    def remove(self, name: str) -> None:
        """Forget an entry; what another package brings stays."""
        if name not in self._entries:
            raise unknown(self.kind, name, self._entries)
        del self._entries[name]

    def names(self) -> list[str]:
        """Give the names in the order of registration, then those of entry points."""
        return [entry.name for entry in self]

    def find(self, given: str | Callable[..., Any]) -> EntryT:
        """Give the entry of a name, or make one for `package.module:attribute` or for an implementation itself."""
        if self._make is not None and callable(given):
            return self._make(getattr(given, "__name__", type(given).__name__), given)
        if self._make is not None and is_target(given):
            check_trusted(str(given))
            return self._make(given, given)
        return self[str(given)]

    def left_out(self) -> list[str]:
        """Say of every entry point that no name leads to why that is, in a line."""
        lines = []
        for name, found in self._plugins.items():
            if name in self._entries:
                lines += [f"{self.kind} {name!r} of {entry.origin}: the name is taken here" for entry in found]
            elif len(found) > 1:
                lines.append(self.ambiguous(name))
        return lines

    def ambiguous(self, name: str) -> str:
        """Say that a name stands for entry points of several packages."""
        places = " and ".join(sorted(f"{entry.origin} ({entry.target})" for entry in self._plugins[name]))
        return f"{self.kind} {name!r} is in {places}; uninstall one, or give package.module:attribute"

    @functools.cached_property
    def _plugins(self) -> Mapping[str, list[EntryT]]:
        """Entry points by name, not imported; a target that two distributions name is one."""
        from importlib.metadata import entry_points

        found: dict[str, dict[str, EntryT]] = {}
        if self._make is not None:
            for point in entry_points(group=self.group):
                target = point.value.partition("[")[0].replace(" ", "")  # without extras
                origin = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
                found.setdefault(point.name, {}).setdefault(target, self._make(point.name, target, origin=origin))
        return {name: list(entries.values()) for name, entries in found.items()}

    def __getitem__(self, name: str) -> EntryT:
        if name in self._entries:
            return self._entries[name]
        found = self._plugins.get(name, [])
        if len(found) != 1:
            raise InputError(self.ambiguous(name)) if found else unknown(self.kind, name, self.names())
        return found[0]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._plugins

    def __iter__(self) -> Iterator[EntryT]:
        yield from self._entries.values()
        for name, found in self._plugins.items():
            if name not in self._entries and len(found) == 1:
                yield found[0]

    def __len__(self) -> int:
        return len(self.names())


PLUGGABLE: list[Registry[Any]] = []
"""All registries that take entry points of other packages, for the list of them."""


def own_code(kind: str, name: str) -> str:
    """Say where the code of a part is that other machines need not have; empty: it is ours or torch's.

    Args:
        kind: `activation`, `backbone`, `method` or `dataset`
        name: its name or place; one that is not known here is someone's own

    >>> from arelu_meta import backbones
    >>> own_code("backbone", "conv4"), own_code("backbone", "mine:Net")
    ('', 'mine:Net')
    """
    registry = next(registry for registry in PLUGGABLE if registry.kind == kind)
    try:
        return str(registry.find(name).own_code)
    except InputError:
        return name


def unknown_part(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that stands for nothing, or for two things that packages brought."""
    for registry in PLUGGABLE:
        if registry.kind == kind and name in registry and name not in registry.names():
            return InputError(registry.ambiguous(name))
    return unknown(kind, name, known)


def check_accepts(
    what: str, target: Callable[..., Any], options: Iterable[str], *, given: Collection[str] = ()
) -> None:
    """Refuse options that an implementation does not take.

    Args:
        what: the implementation, for messages
        target: the class or function
        options: names of options
        given: parameters that are filled elsewhere; it must take them, and they are no options

    Raises:
        InputError: an unknown option, or a parameter that it does not take.

    >>> check_accepts("round", round, ["ndigts"], given=["number"])
    Traceback (most recent call last):
    arelu_meta.errors.InputError: unknown option of round: 'ndigts'; did you mean 'ndigits'?
    """
    taken, any_name = parameters_of(target)
    missing = [name for name in given if name not in taken and not any_name]
    if missing:
        called = ", ".join(f"{name}=" for name in given)
        raise InputError(f"{what} takes no argument {missing[0]!r}; it is called with {called}")
    for option in options:
        if option in given or (option not in taken and not any_name):
            raise unknown(f"option of {what}:", option, taken.keys() - set(given))


def parameters_of(target: Callable[..., Any]) -> tuple[Mapping[str, inspect.Parameter], bool]:
    """Give the named parameters of a class or function, and whether it takes others too, as far as Python knows."""
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):  # some that are written in C say nothing of themselves
        return {}, True
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: each for name, each in parameters.items() if each.kind not in variadic}, open_ended


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
    except InputError:  # of a module of ours that says what it needs
        raise
    except (Exception, SystemExit) as error:  # a module of anyone's may fail in any way when it is imported
        kind = "" if isinstance(error, ModuleNotFoundError) else f"{type(error).__name__}: "
        raise InputError(f"cannot import {module_name!r} for {target!r}: {kind}{first_line(error)}") from error
    owner: Any = module
    for name in attribute.split("."):
        if not hasattr(owner, name):
            place = module_name if owner is module else getattr(owner, "__name__", type(owner).__name__)
            known = [each for each in dir(owner) if not each.startswith("__")]
            raise unknown(f"attribute of {place}", name, known)
        owner = getattr(owner, name)
    return owner
