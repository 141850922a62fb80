"""`swap` and `restore`: replace the activations of a built network call site by call site, and put them back."""

import copy
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import fx, nn

from arelu_meta import activations
from arelu_meta.errors import InputError
from arelu_meta.surgery.folding import Readers
from arelu_meta.surgery.kinds import asked_kinds, module_kind, old_function
from arelu_meta.surgery.network import MODES, Network, Part
from arelu_meta.surgery.preserving import capped_like, gain, old_slope, residual, start_like
from arelu_meta.surgery.report import OldForward, OldModule, OldWeight, Site, SwapReport, label
from arelu_meta.surgery.rewriting import current_forward, forward_text, set_forward
from arelu_meta.surgery.sites import CallSite, call_sites

Where = str | Callable[[str], bool] | None


def swap(
    model: nn.Module,
    to: activations.Activation = "arelu",
    from_: str | Iterable[str] | None = None,
    where: Where = None,
    preserve: bool = False,
    **options: Any,
) -> SwapReport:
    """Replace activations in place, one new module per call site, and report every site.

    `from_` names what is replaced (default: what stands between layers, from relu to swish; gates stay), `where` picks
    sites by a glob pattern or a predicate on their names, `options` go to the new activation. With `preserve` the new
    ones start where the old ones were, as nearly as they can, and a gain that is left goes into the next layer's weight
    where that is exact.

    >>> net = nn.Sequential(nn.Linear(2, 2), act := nn.ReLU(), nn.Linear(2, 2), act)
    >>> [site.name for site in swap(net, "arelu").sites]
    ['1', '3']
    """
    kinds = asked_kinds(from_, to)
    _check_activation(activations.build(to, **options), to)
    _check_model(model)
    network = Network(model, kinds)
    sites = call_sites(network)
    chosen = _choose(model, kinds, sites, where)
    rewritten = _parts_to_rewrite(network, sites, chosen)
    readers = Readers(network) if preserve else None
    made = [_make(site, to, options, readers) for site in chosen]
    undo: list[OldModule | OldForward | OldWeight] = []
    for part in rewritten:
        undo.append(_rewrite(part, sites, chosen))
    undo += _move_unchosen(sites, chosen)
    device, dtype = _device_and_type(model)
    for site, (new, record, factor) in zip(chosen, made, strict=True):
        home = site.part.module.get_submodule(site.home)
        undo.append(_place(home, _join(site.part.path, site.home), site.leaf, new.to(device, dtype)))
        new.train(site.part.module.training)
        if record.folded_into and factor:
            undo.append(_fold(model, record.folded_into, factor))
    name = getattr(to, "__name__", str(to))
    records = tuple(record for _, record, _ in made)
    return SwapReport(type(model).__name__, name, records, tuple(part.path for part in rewritten), tuple(undo))


@torch.no_grad()
def restore(model: nn.Module, report: SwapReport) -> None:
    """Put back what `swap` replaced; an untrained network then computes bit for bit what it computed before.

    Works on copies and on networks loaded into the same structure, too. A weight that took up a gain comes back as it
    was if nobody changed it, else multiplied by the gain.
    """
    present = dict(model.named_modules(remove_duplicate=False))
    for site in report.sites:
        if site.name not in present or label(present[site.name]) != site.new:
            raise InputError(
                f"this {type(model).__name__} has no {site.new} at {site.name!r}; the report is not its own"
            )
    copies: dict[int, Any] = {}
    for step in reversed(report.undo):
        if isinstance(step, OldForward):
            set_forward(model.get_submodule(step.path), step.forward)
        elif isinstance(step, OldWeight):
            weight = model.get_parameter(f"{step.path}.weight")
            original = step.weight.to(weight.device, weight.dtype)
            untouched = torch.equal(weight, original / step.gain)
            weight.copy_(original if untouched else weight * step.gain)
        else:
            _put_back(model.get_submodule(step.home), step, copies)


def _check_activation(new: nn.Module, to: activations.Activation) -> None:
    multiple = getattr(new, "input_multiple", 1)
    if multiple != 1:
        raise InputError(
            f"{to!r} takes {multiple} inputs per output, so it cannot stand where the layer before has one; "
            "build the network with it instead"
        )


def _check_model(model: nn.Module) -> None:
    if module_kind(model) is not None:
        raise InputError(f"the network is a single {type(model).__name__}; put it into an nn.Sequential to swap it")
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel, torch.jit.ScriptModule)
    if isinstance(model, wrappers) or hasattr(model, "_orig_mod"):
        raise InputError(f"swap before wrapping: {type(model).__name__} hides the network's own forward pass")


def _choose(model: nn.Module, kinds: frozenset[str], sites: list[CallSite], where: Where) -> list[CallSite]:
    if not sites:
        others = sorted({kind for module in model.modules() if (kind := module_kind(module)) is not None})
        has = f"it has {', '.join(others)}" if others else "it has no activation modules"
        lacks = f"{type(model).__name__} applies none of {', '.join(sorted(kinds))}; {has}"
        raise InputError(f"{lacks}; name those to replace (from_), or leave them as they are")
    if where is None:
        return sites
    fits = where if callable(where) else lambda name: fnmatchcase(name, where)
    chosen = [site for site in sites if fits(site.name)]
    if not chosen:
        asked = "the predicate" if callable(where) else repr(where)
        raise InputError(
            f"where: {asked} fits none of the {len(sites)} sites: {', '.join(site.name for site in sites)}"
        )
    return chosen


def _parts_to_rewrite(network: Network, sites: list[CallSite], chosen: list[CallSite]) -> list[Part]:
    """Blocks in which a call changes its target; with one call of a module, all its calls get places of their own."""
    slots = {site.slot for site in chosen if not site.by_module}
    parts = list({id(site.part): site.part for site in sites if site.slot in slots}.values())
    for part in parts:
        if part.trace.obstacle is not None:
            network.refuse(part.path, part.trace.obstacle)
    return parts


def _make(
    site: CallSite, to: activations.Activation, options: dict[str, Any], readers: Readers | None
) -> tuple[nn.Module, Site, float | None]:
    """Build a new activation with its line in the report, and the gain to fold."""
    module = site.part.modules[str(site.node.target)] if site.node.op == "call_module" else None
    slope = old_slope(module, site.node, site.kind)
    built = dict(options)
    if readers is not None and to == "prelu" and slope.numel() > 1:
        built.setdefault("num_parameters", slope.numel())
    new = activations.build(to, **built)
    factor, layer = None, None
    if readers is not None:
        start_like(new, slope, options)
        new = capped_like(new, site.kind)
        factor = gain(new)
        if factor is not None and factor != 1:
            layer = readers.layer(site)
    scale = 1 / factor if layer and factor else 1.0
    record = Site(
        name=site.name,
        old=site.old,
        new=label(new),
        shared=site.calls,
        parameters=sum(parameter.numel() for parameter in new.parameters()),
        residual=residual(new, old_function(site.node, site.part.modules), scale),
        folded_into=layer,
    )
    return new, record, factor


def _rewrite(part: Part, sites: list[CallSite], chosen: list[CallSite]) -> OldForward:
    """Write the block's forward pass anew, with the calls of its sites going to modules of their own."""
    taken = {id(site) for site in chosen}
    graphs = {}
    for training in MODES:
        graph = fx.Graph()
        twins: dict[fx.Node, fx.Node] = {}
        graph.output(graph.graph_copy(part.trace.graphs[training], twins))
        for site in (site for site in sites if site.part is part):
            node = site.nodes[training]
            if node is None:
                continue
            if id(site) in taken:
                _redirect(graph, twins[node], site)
            elif node.op == "call_module":
                twins[node].target = site.target
        graphs[training] = graph
    before = OldForward(part.path, current_forward(part.module))
    set_forward(part.module, forward_text(part.module, graphs))
    return before


def _redirect(graph: fx.Graph, node: fx.Node, site: CallSite) -> None:
    value = node.args[0] if node.args else node.kwargs["input"]
    assert isinstance(value, fx.Node)  # noqa: S101
    with graph.inserting_before(node):
        if site.overwrites:
            result = graph.call_module(site.target, (graph.call_method("clone", (value,)),))
            result = graph.call_method("copy_", (value, result))
        else:
            result = graph.call_module(site.target, (value,))
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def _move_unchosen(sites: list[CallSite], chosen: list[CallSite]) -> list[OldModule]:
    """Give calls that stay as they are, of a module that other calls lose, the old module at their own place."""
    slots, taken = {site.slot for site in chosen if not site.by_module}, {id(site) for site in chosen}
    undo = []
    for site in sites:
        if site.slot in slots and id(site) not in taken and site.node.op == "call_module":
            home = site.part.module.get_submodule(site.home)
            old = site.part.modules[str(site.node.target)]
            undo.append(_place(home, _join(site.part.path, site.home), site.leaf, old))
    return undo


def _place(home: nn.Module, path: str, leaf: str, module: nn.Module) -> OldModule:
    before = OldModule(path, leaf, home._modules.get(leaf))
    home.add_module(leaf, module)
    return before


def _put_back(home: nn.Module, step: OldModule, copies: dict[int, Any]) -> None:
    if step.module is None:
        delattr(home, step.leaf)
        return
    now = next(home._modules[step.leaf].parameters(), None)  # type: ignore[union-attr]
    old = copy.deepcopy(step.module, copies)
    home.add_module(step.leaf, old if now is None else old.to(now.device, now.dtype))
    old.train(home.training)


@torch.no_grad()
def _fold(model: nn.Module, path: str, factor: float) -> OldWeight:
    weight = model.get_parameter(f"{path}.weight")
    before = OldWeight(path, factor, weight.detach().clone())
    weight.copy_(weight / factor)
    return before


def _device_and_type(model: nn.Module) -> tuple[torch.device | None, torch.dtype | None]:
    floating = (parameter for parameter in model.parameters() if parameter.is_floating_point())
    first = next(floating, None)
    return (None, None) if first is None else (first.device, first.dtype)


def _join(*names: str) -> str:
    return ".".join(name for name in names if name)
