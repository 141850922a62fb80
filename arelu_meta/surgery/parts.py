"""The largest parts of a network that can be proved, where the network itself cannot be traced.

A part is a module below a block that no trace follows. What its caller gives it is unknown, so a part is proved for
every kind of argument: a tensor or None, True or False. It is proved if all of them lead to the same call sites; then
every activation is called once in each call of the part, however often the part itself runs. A part that holds a block
which is also called from elsewhere, or of which the code around names something inside, is not taken, and none is taken
inside another. One that the code around does more with than to call it keeps its forward, and its weights.

Where the block around an activation module cannot be traced, the module alone is a part if the source of that block
calls it at one place, outside of loops.
"""

import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx, nn

from arelu_meta.surgery.activation_types import module_type
from arelu_meta.surgery.reachable_code import activations_in_code, cannot_apply, concealment, is_torch
from arelu_meta.surgery.report import LeftReport
from arelu_meta.surgery.sites import CallSite, call_sites
from arelu_meta.surgery.source import ANYTHING, calls_once, compared_by_identity, names_inside, uses_of
from arelu_meta.surgery.traced_model import TracedBlock, TracedModel, UnprovedError, join_path
from arelu_meta.surgery.tracing import TENSOR, Given, Trace, UntraceableError

_LIKE_ACTIVATIONS = r".*(relu|elu|swish|silu|mish)\d?(activation|act)?"
# Words of annotations that leave nothing to ask a value but what a trace refuses, or is tried with both answers.
_TENSORS_OR_NUMBERS = {
    *("class", "torch", "typing", "inspect", "_empty", "Optional", "Union", "None", "NoneType", "float", "int", "bool"),
    *("Tensor", "FloatTensor", "LongTensor", "IntTensor", "BoolTensor", "tuple", "Tuple", "list", "List", "Size"),
}
_MOST_ARGUMENT_KINDS = 16  # traces of one part


@dataclass
class Part:
    """A part whose call sites are proved; `traced` is None for a single activation module."""

    path: str
    sites: list[CallSite]
    traced: TracedModel | None
    foldable: bool  # its graphs are those of all calls


@dataclass
class Parts:
    """What is proved of a network, what is not, and the blocks in between that no trace follows."""

    proved: list[Part] = field(default_factory=list)
    left: list[LeftReport] = field(default_factory=list)
    unproved: list[nn.Module] = field(default_factory=list)

    @property
    def sites(self) -> list[CallSite]:
        """All call sites that are proved."""
        return [site for part in self.proved for site in part.sites]

    @property
    def traced(self) -> list[TracedModel]:
        """The traces of all parts but single modules."""
        return [part.traced for part in self.proved if part.traced is not None]


@dataclass
class Around:
    """What code around a module does: names that it takes of other objects, and its uses of the module itself."""

    inside: set[str]
    uses: list[str]


def whole(model: nn.Module, types: frozenset[str]) -> Parts:
    """Take the network as one part.

    Raises:
        UnprovedError: no trace proves what it calls.
    """
    traced = TracedModel(model, types)
    return Parts([Part("", call_sites(traced), traced, foldable=True)])


def find_parts(model: nn.Module, types: frozenset[str], refused: UnprovedError) -> Parts:
    """Find the largest parts that can be proved, from the top down; the network itself was `refused`."""
    found = Parts()
    paths: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(id(module), []).append(name)
    seen: set[int] = set()
    waiting: list[tuple[nn.Module, str]] = [(model, refused.reason)]
    while waiting:
        block, reason = waiting.pop()
        path = paths[id(block)][0]
        found.unproved.append(block)
        if named := activations_in_code(block, types):
            found.left.append(LeftReport(path, reason, tuple(named)))
        below = []
        # A module of two names stands at two places.
        for name, child in block.named_modules(remove_duplicate=False):
            if not name or "." in name:
                continue
            around = _around(model, found.unproved, paths[id(child)])
            if module_type(child) in types:
                _take_single(found, block, path, name, child, around)
            elif id(child) not in seen and not cannot_apply(child, types):
                seen.add(id(child))
                below += _take(found, child, paths, types, around)
        waiting += reversed(below)
    return found


def _around(model: nn.Module, unproved: list[nn.Module], paths: list[str]) -> "Around":
    """Read what the code around a module does with it and with what is inside."""
    steps = [path.split(".") for path in paths]
    holders = {id(model.get_submodule(".".join(step[:end]))) for step in steps for end in range(len(step))}
    code = [block for block in unproved if id(block) in holders]
    inside = set[str]().union(*(names_inside(block) for block in code if not is_torch(type(block))))
    uses: list[str] = []
    for step in steps:
        depth, owner = 0, model.get_submodule(".".join(step[:-1]))
        while type(owner).forward is nn.Module.forward and len(step) > depth + 1:  # a list or dict of modules
            depth += 1
            owner = model.get_submodule(".".join(step[: -1 - depth]))
        # torch's own containers and wrappers call what they hold.
        uses += ["called"] if is_torch(type(owner)) else uses_of(owner, step[-1 - depth], depth) or ["other"]
    return Around(inside, uses)


def unknown_activations(model: nn.Module, sites: list[str]) -> list[LeftReport]:
    """List modules that are called after an activation and compute something of their own, and stay therefore."""
    left = []
    for path, module in model.named_modules():
        known = module_type(module) is not None or is_torch(type(module)) or any(module.children())
        named = re.fullmatch(_LIKE_ACTIVATIONS, type(module).__name__.lower()) is not None
        if named and not known and not any(site.startswith(f"{path}.") for site in sites):
            home = f"{type(module).__module__}.{type(module).__qualname__}"
            left.append(LeftReport(path, f"{home} is no activation that is known, or equal to one"))
    return left


def _take(
    found: Parts, module: nn.Module, paths: dict[int, list[str]], types: frozenset[str], around: Around
) -> list[tuple[nn.Module, str]]:
    """Add a module to the parts; else give it back, with the reason, to be looked into."""
    path = paths[id(module)][0]
    reason = concealment(module)
    # What these two are around is a network like any other.
    if reason is not None and not isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        found.left.append(LeftReport(path, reason))
        return []
    try:
        outside = _called_from_elsewhere(module, paths)
        if outside is not None:
            raise UntraceableError(f"holds {outside}, which is called from elsewhere, too")
        if "indexed" in around.uses and len(around.uses) > 1:
            raise UntraceableError("is called, and also taken to pieces")
        if named := _named_inside(module, around.inside):
            raise UntraceableError(f"has its {named} named by the code around it")
        part = _prove(module, path, types, set(around.uses) == {"called"})
    except UntraceableError as error:
        return [(module, str(error))]
    except UnprovedError as error:
        return [(module, error.reason)]
    found.proved += [part] if part.sites else []
    return []


def _called_from_elsewhere(module: nn.Module, paths: dict[int, list[str]]) -> str | None:
    """Name a block below that also stands outside of the part; single layers and activations may."""
    inside = tuple(f"{path}." for path in paths[id(module)])
    for child in itertools.islice(module.modules(), 1, None):
        single = module_type(child) is not None or (is_torch(type(child)) and not any(child.children()))
        if not single and any(not path.startswith(inside) for path in paths.get(id(child), ())):
            return paths[id(child)][0]
    return None


def _named_inside(module: nn.Module, names: set[str]) -> str | None:
    """Name a method, or what holds activations, inside a part that the code around it may name; layers it may."""
    inside = {name for cls in type(module).__mro__ if not is_torch(cls) for name in vars(cls) if name[:2] != "__"}
    for path, child in module.named_modules():
        if path and (module_type(child) is not None or not is_torch(type(child)) or any(child.children())):
            inside.add(path.rpartition(".")[2])
    found = sorted(inside - {"forward"} if ANYTHING in names else inside & names - {"forward"})
    return found[0] if found else None


def _prove(module: nn.Module, path: str, types: frozenset[str], only_called: bool) -> Part:
    """Trace a part with every kind of arguments, and hold the call sites of each to those of the first."""
    kinds = list(_argument_kinds(module))
    proofs: list[tuple[TracedModel, list[CallSite]]] = []
    for given in kinds:
        try:
            traced = TracedModel(module, types, path, given)
        except UnprovedError as error:
            # No caller gives a None that `forward` cannot take.
            if "NoneType" in error.reason and None in given.values():
                continue
            raise
        proofs.append((traced, call_sites(traced)))
    if not proofs:
        raise UntraceableError("takes none of the arguments that were tried")
    traced, sites = proofs[0]
    for _, others in proofs[1:]:
        if [_features(site) for site in others] != [_features(site) for site in sites]:
            raise UntraceableError("calls activations that depend on its arguments")
    _check_identity(module, sites, types)
    for site in sites:
        if not site.by_module and not only_called:
            raise UntraceableError("would have to be written anew, and its caller does more than to call it")
        if not site.by_module and len(proofs) > 1:
            raise UntraceableError("would have to be written anew for each kind of its arguments")
        if not site.by_module and site.block.trace.obstacle is not None:
            raise UntraceableError(site.block.trace.obstacle)
    return Part(path, sites, traced, foldable=len(proofs) == 1 and only_called)


def _check_identity(module: nn.Module, sites: list[CallSite], types: frozenset[str]) -> None:
    """Refuse where `is None` is asked of more than arguments, and an activation could stand on the side not seen."""
    if compared_by_identity(module) <= set(inspect.signature(type(module).forward).parameters):
        return
    seen = {id(site.module) for site in sites}
    unseen = any(module_type(child) in types and id(child) not in seen for child in module.modules())
    by_function = any(activations_in_code(child, types) for child in module.modules() if not is_torch(type(child)))
    if unseen or by_function or not all(site.by_module for site in sites):
        raise UntraceableError("asks whether a value is None that may come with its arguments")


def _features(site: CallSite) -> tuple[Any, ...]:
    return site.name, site.activation, site.calls, site.by_module, site.overwrites


def _argument_kinds(module: nn.Module) -> Iterator[dict[str, Given]]:
    """Give every combination of what a caller may pass: TENSOR stands for any value that a trace can carry."""
    choices: dict[str, tuple[Given, ...]] = {}
    asked = compared_by_identity(module)
    for position, parameter in enumerate(list(inspect.signature(type(module).forward).parameters.values())[1:]):
        default, annotation = parameter.default, str(parameter.annotation)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UntraceableError(f"takes {parameter}, whatever its caller gives")
        plain = default in (parameter.empty, None) or isinstance(default, (bool, int, float, Tensor))
        if not plain or set(re.findall(r"\w+", annotation)) - _TENSORS_OR_NUMBERS:
            raise UntraceableError(f"takes {parameter}, which may be no tensor")
        unknown = position > 0 and default is parameter.empty and parameter.annotation is parameter.empty
        optional = (
            unknown or parameter.name in asked or default is None or "None" in annotation or "Optional" in annotation
        )
        values = (False, True) if isinstance(default, bool) or "bool" in annotation else (TENSOR,)
        choices[parameter.name] = (*values, None) if optional else values
    combined = list(itertools.islice(itertools.product(*choices.values()), _MOST_ARGUMENT_KINDS + 1))
    if len(combined) > _MOST_ARGUMENT_KINDS:
        raise UntraceableError(f"has more than {_MOST_ARGUMENT_KINDS} kinds of arguments")
    return (dict(zip(choices, values, strict=True)) for values in combined)


def _take_single(found: Parts, block: nn.Module, path: str, leaf: str, activation: nn.Module, around: Around) -> None:
    """Add an activation module of a block that cannot be traced, or say why it stays."""
    kind, name = str(module_type(activation)), join_path(path, leaf)
    if getattr(activation, "inplace", False):
        found.left.append(LeftReport(name, "overwrites its input, which others may read", (kind,)))
    elif not calls_once(block, leaf) or around.inside & {leaf, ANYTHING}:
        found.left.append(LeftReport(name, "is not called at one place of its block's source", (kind,)))
    else:
        graph = fx.Graph()
        call = graph.call_module(leaf, (graph.placeholder("input"),))
        graph.output(call)
        holder = TracedBlock(block, path, Trace({True: graph, False: graph}), owns_input=False)
        site = CallSite(
            block=holder,
            nodes={True: call, False: call},
            node=call,
            module=activation,
            activation=kind,
            home="",
            leaf=leaf,
            target=leaf,
            name=name,
            slot=(id(block), leaf, "module"),
            calls=1,
            by_module=True,
            overwrites=False,
        )
        found.proved.append(Part(name, [site], None, foldable=False))
