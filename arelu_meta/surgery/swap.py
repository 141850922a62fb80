"""`swap` and `restore`: replace the activations of a built network call site by call site, and put them back."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn

from arelu_meta import activations
from arelu_meta.activations.channels import fit_channels, unfitted
from arelu_meta.activations.clamped import Clamped, clamp_output
from arelu_meta.errors import InputError
from arelu_meta.kernels.module_internals import move_call_hooks
from arelu_meta.surgery.activation_types import module_type, source_text, types_to_replace
from arelu_meta.surgery.formulas import remember_formulas
from arelu_meta.surgery.hooks import check_hooks
from arelu_meta.surgery.parts import Parts, find_parts, unknown_activations, whole
from arelu_meta.surgery.preserving import RELU6_MAXIMUM, FoldingTargets, gain, old_slope, residual, start_like
from arelu_meta.surgery.reachable_code import class_may_apply, is_wrapper, syntax_of
from arelu_meta.surgery.report import OldForward, OldModule, OldWeight, SiteReport, SwapReport, activation_label
from arelu_meta.surgery.rewriting import ForwardText, current_forward, rewrite_block
from arelu_meta.surgery.sites import CallSite
from arelu_meta.surgery.traced_model import UnprovedError, join_path

Where = str | Callable[[str], bool] | None


@remember_formulas()
def swap(
    model: nn.Module,
    to: activations.Activation = "arelu",
    from_: str | Iterable[str] | None = None,
    where: Where = None,
    preserve: bool = False,
    parts: Literal["auto"] | None = None,
    example: Tensor | None = None,
    **options: Any,
) -> SwapReport:
    """Replace activations in place, one new module per call site.

    Args:
        model: a network that is not wrapped: swap before `torch.compile` or `DataParallel`
        to: the new activation, as in `activations.build`: a name, a class, or a callable that gives a module
        from_: names of what is replaced; None: what stands between layers, not gates (sigmoid, tanh, softplus)
        where: picks sites by a glob pattern on their names (`"layer4.*"`), or by a predicate; None: all
        preserve: start where the old ones were, as nearly as possible; fold a gain into the next layer if exact
        parts: "auto": of a network that cannot be traced, swap the largest parts that can be proved, leave the rest
            as it is, and report both; None: refuse such a network
        example: an input of the network, by which activations with numbers for each channel count these
        options: options of the new activation

    Returns:
        A report with a line per call site, which `restore` takes to undo the swap.

    Raises:
        InputError: no trace proves what the network calls, or nothing is to be replaced; it is then as it was.

    >>> net = nn.Sequential(nn.Linear(2, 2), act := nn.ReLU(), nn.Linear(2, 2), act)
    >>> [site.name for site in swap(net, "arelu").sites]
    ['1', '3']
    """
    if parts not in ("auto", None):
        raise InputError(f'`parts` is "auto" or None, not {parts!r}')
    class_may_apply.cache_clear()  # classes may have changed since
    syntax_of.cache_clear()
    types = types_to_replace(from_, to)
    _check_swappable(model, activations.build(to, **options), to, example)
    try:
        report = _swap_parts(model, whole(model, types), types, to, where, preserve, options)
    except UnprovedError as error:
        found = find_parts(model, types, error)
        if not found.sites:
            raise
        if parts is None:
            count = len(found.sites)
            raise InputError(f'{error}; give `parts="auto"` to swap the {count} that can be proved') from None
        report = _swap_parts(model, found, types, to, where, preserve, options)
    return _with_channels(model, report, example)


def _with_channels(model: nn.Module, report: SwapReport, example: Tensor | None) -> SwapReport:
    """Give activations with numbers for each channel as many as there are, and count these in the report."""
    if example is None or not unfitted(model):
        return report
    try:
        fit_channels(model, example)
    except InputError:
        restore(model, report)
        raise
    modules = dict(model.named_modules(remove_duplicate=False))
    counts = {site.name: sum(value.numel() for value in modules[site.name].parameters()) for site in report.sites}
    return replace(report, sites=tuple(replace(site, parameters=counts[site.name]) for site in report.sites))


def _swap_parts(
    model: nn.Module,
    parts: Parts,
    types: frozenset[str],
    to: activations.Activation,
    where: Where,
    preserve: bool,
    options: dict[str, Any],
) -> SwapReport:
    """Swap at the sites of all parts; what cannot be done is refused before anything is changed."""
    sites = parts.sites
    chosen = _choose(model, types, sites, where)
    # With one call of a shared module, all its calls get places of their own.
    slots = {site.slot for site in chosen if not site.by_module}
    blocks = list({id(site.block): site.block for site in sites if site.slot in slots}.values())
    written_in: list[nn.Module] = []
    for traced in parts.traced:
        for block in (block for block in traced.blocks if any(block is other for other in blocks)):
            written_in += traced.written_in(block)
            if block.trace.obstacle is not None:
                traced.refuse(block.path, block.trace.obstacle)
    check_hooks(model, sites, chosen, written_in)
    folding = FoldingTargets(model, parts) if preserve else None
    new = [_new_activation(site, to, options, folding) for site in chosen]
    undo: list[OldModule | OldForward | OldWeight] = []
    undo += [OldForward(block.path, current_forward(block.module)) for block in blocks]
    for block in blocks:
        rewrite_block(block, sites, chosen)
    for site in sites:  # calls that stay as they are get the old module at their own place
        if site.slot in slots and site.module is not None and not any(site is other for other in chosen):
            undo.append(_set_module(site, site.module))
    undo += _put_in(model, chosen, new)
    reports, rewritten = tuple(report for _, report, _ in new), tuple(block.path for block in blocks)
    taken = {id(site) for site in chosen}
    paths = tuple(part.path for part in parts.proved if part.path and any(id(site) in taken for site in part.sites))
    left = (*parts.left, *unknown_activations(model, [site.name for site in sites]))
    name = getattr(to, "__name__", str(to))
    return SwapReport(type(model).__name__, name, reports, rewritten, tuple(undo), paths, left)


@torch.no_grad()
def restore(model: nn.Module, report: SwapReport) -> None:
    """Put back what `swap` replaced; an untrained network then computes bit for bit what it computed before.

    Works on copies and on networks loaded into the same structure, too. A weight that took up a gain comes back as it
    was if nobody changed it, else multiplied by the gain.

    Args:
        model: the swapped network, a copy of it, or one of the same structure
        report: what `swap` returned; of several swaps the last one first

    Raises:
        InputError: the network has other activations at the sites of the report.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> restore(net, swap(net, "arelu"))
    >>> net[1]
    ReLU()
    """
    present = dict(model.named_modules(remove_duplicate=False))
    for site in report.sites:
        if site.name not in present or activation_label(present[site.name]) != site.new:
            raise InputError(
                f"this {type(model).__name__} has no {site.new} at {site.name!r}; the report is not its own"
            )
    copies: dict[int, Any] = {}
    for step in reversed(report.undo):
        if isinstance(step, OldForward):
            old_class = step.forward.make_class() if isinstance(step.forward, ForwardText) else step.forward
            model.get_submodule(step.path).__class__ = old_class
        elif isinstance(step, OldWeight):
            weight = model.get_parameter(f"{step.path}.weight")
            original = step.weight.to(weight.device, weight.dtype)
            untouched = torch.equal(weight, original / step.gain)
            weight.copy_(original if untouched else weight * step.gain)
        elif step.module is None:
            delattr(model.get_submodule(step.home), step.leaf)
        else:
            home = model.get_submodule(step.home)
            replaced = home.get_submodule(step.leaf)
            now = next(replaced.parameters(), None)
            old = copy.deepcopy(step.module, copies)
            home.add_module(step.leaf, old if now is None else old.to(now.device, now.dtype))
            move_call_hooks(replaced, old.train(home.training))


def _check_swappable(model: nn.Module, new: nn.Module, to: activations.Activation, example: Tensor | None) -> None:
    """Refuse an activation that needs other layers, and a network that hides its forward pass."""
    multiple = getattr(new, "input_multiple", 1)
    if multiple != 1:
        raise InputError(
            f"{to!r} takes {multiple} inputs per output, so it cannot stand where the layer before has one; "
            "build the network with it instead"
        )
    if unfitted(new) and example is None:
        raise InputError(
            f"{to!r} has numbers for each channel; give an input of the network as `example` to count them"
        )
    if module_type(model) is not None:
        raise InputError(f"the network is a single {type(model).__name__}; put it into an nn.Sequential to swap it")
    if is_wrapper(model):
        raise InputError(f"swap before wrapping: {type(model).__name__} hides the network's own forward pass")


def _choose(model: nn.Module, types: frozenset[str], sites: list[CallSite], where: Where) -> list[CallSite]:
    """Pick the sites that `where` names; refuse where there are none."""
    if not sites:
        others = sorted({kind for module in model.modules() if (kind := module_type(module)) is not None})
        has = f"it has {', '.join(others)}" if others else "it has no activation modules"
        lacks = f"{type(model).__name__} applies none of {', '.join(sorted(types))}; {has}"
        raise InputError(f"{lacks}; name those to replace in `from_`, or leave them as they are")
    if where is None:
        return sites
    if not isinstance(where, str) and not callable(where):
        raise InputError(f"`where` is a glob pattern on site names, a predicate or None, not {where!r}")
    fits = where if callable(where) else lambda name: fnmatchcase(name, where)
    chosen = [site for site in sites if fits(site.name)]
    if not chosen:
        asked = "the predicate" if callable(where) else repr(where)
        raise InputError(
            f"`where`: {asked} fits none of the {len(sites)} sites: {', '.join(site.name for site in sites)}"
        )
    return chosen


def _new_activation(
    site: CallSite, to: activations.Activation, options: dict[str, Any], folding: FoldingTargets | None
) -> tuple[nn.Module, SiteReport, float | None]:
    """Build a new activation with its line in the report, and the gain to fold; `folding` is None: not preserved."""
    factor, layer, slope, built = None, None, old_slope(site), dict(options)
    if folding is not None and to == "prelu" and slope.numel() > 1:
        built.setdefault("num_parameters", slope.numel())
    new = activations.build(to, **built)
    if folding is not None:
        start_like(new, slope, options)
        # Without the bound of ReLU6 the signal of a trained network grows from layer to layer.
        if site.activation == "relu6":
            new = clamp_output(new, RELU6_MAXIMUM)
        elif isinstance(site.module, Clamped):
            new = clamp_output(new, site.module.maximum)
        factor = gain(new)
        if factor is not None and factor != 1:
            layer = folding.layer(site)
    report = SiteReport(
        name=site.name,
        old=source_text(site.node, site.block.modules),
        new=activation_label(new),
        shared=site.calls,
        parameters=sum(parameter.numel() for parameter in new.parameters()),
        residual=residual(new, site, 1 / factor if layer and factor else 1.0),
        folded_into=layer,
    )
    return new, report, factor


def _put_in(
    model: nn.Module, chosen: list[CallSite], new: list[tuple[nn.Module, SiteReport, float | None]]
) -> list[OldModule | OldWeight]:
    """Put the new activations in, of the network's device and type, fold their gains, and say what was there."""
    undo: list[OldModule | OldWeight] = []
    first = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), None)
    for site, (module, report, factor) in zip(chosen, new, strict=True):
        if first is not None:
            module.to(first.device, first.dtype)
        undo.append(_set_module(site, module.train(site.block.module.training)))
        if site.module is not None:
            move_call_hooks(site.module, module)
        if report.folded_into and factor:
            weight = model.get_parameter(f"{report.folded_into}.weight")
            undo.append(OldWeight(report.folded_into, factor, weight.detach().clone()))
            with torch.no_grad():
                weight.copy_(weight / factor)
    return undo


def _set_module(site: CallSite, module: nn.Module) -> OldModule:
    """Put a module at the site's place, and say what was there."""
    home = site.block.module.get_submodule(site.home)
    before = OldModule(join_path(site.block.path, site.home), site.leaf, getattr(home, site.leaf, None))
    home.add_module(site.leaf, module)
    return before
