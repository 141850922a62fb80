"""What a swap did, site by site, and what it takes to undo it."""

from dataclasses import dataclass, field

from torch import Tensor, nn

from arelu_meta.activations.clamped import Clamped, original_class
from arelu_meta.console.tables import text_table
from arelu_meta.surgery.rewriting import ForwardText


@dataclass(frozen=True)
class SiteReport:
    """What a swap did at one call site.

    Attributes:
        name: path of the new activation in the network
        old: the old call as the source has it: `ReLU`, `F.relu`, `Tensor.relu_`
        new: class of the new activation; `AReLU up to 6` where the bound of ReLU6 was kept
        shared: calls of the old module in one forward pass
        parameters: trainable parameters of the new activation
        residual: largest `|new(x) - old(x)| / |x|`; None where the old one cannot be evaluated
        folded_into: path of the layer whose weight took up the new activation's gain, or None
    """

    name: str
    old: str
    new: str
    shared: int
    parameters: int
    residual: float | None
    folded_into: str | None


@dataclass(frozen=True)
class LeftReport:
    """A place that a swap left as it was, because no trace proves what it calls, or because it computes its own.

    Attributes:
        path: of the block or module
        reason: why it was left
        activations: those known to be applied there, as far as its code names them
    """

    path: str
    reason: str
    activations: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = f" ({', '.join(self.activations)})" if self.activations else ""
        return f"{self.path or 'its forward'}{named}: {self.reason}"


def activation_label(module: nn.Module) -> str:
    """Name an activation as reports do.

    >>> from arelu_meta.activations.clamped import clamp_output
    >>> activation_label(clamp_output(nn.ReLU(), 6.0))
    'ReLU up to 6'
    """
    if isinstance(module, Clamped):
        return f"{original_class(module).__name__} up to {module.maximum:g}"
    return type(module).__name__


@dataclass(frozen=True)
class OldModule:
    """What was at a place before; None where there was nothing."""

    home: str
    leaf: str
    module: nn.Module | None


@dataclass(frozen=True)
class OldForward:
    """The class, or the text, that a block's forward pass came from before."""

    path: str
    forward: ForwardText | type[nn.Module]


@dataclass(frozen=True)
class OldWeight:
    """A weight before it was divided by a gain."""

    path: str
    gain: float
    weight: Tensor


@dataclass(frozen=True)
class SwapReport:
    """Every site of a swap; `str` gives a table, `restore` undoes it.

    Attributes:
        model: class of the network
        to: the new activation
        sites: one report per call site, in the order of the blocks
        rewritten: paths of blocks whose forward pass was written anew
        undo: what `restore` puts back, the last step first
        parts: paths of the parts that were proved one by one; empty where the whole network was
        left: what was left as it was; what stands nowhere here was swapped, or is none of the activations asked for
    """

    model: str
    to: str
    sites: tuple[SiteReport, ...]
    rewritten: tuple[str, ...] = ()
    undo: tuple[OldModule | OldForward | OldWeight, ...] = field(default=(), repr=False)
    parts: tuple[str, ...] = ()
    left: tuple[LeftReport, ...] = ()

    @property
    def parameters(self) -> int:
        """Trainable parameters that came with the new activations."""
        return sum(site.parameters for site in self.sites)

    def __str__(self) -> str:
        header = ("site", "old", "new", "calls before", "parameters", "residual", "gain folded into")
        rows = [
            (
                site.name,
                site.old,
                site.new,
                str(site.shared),
                str(site.parameters),
                "unknown" if site.residual is None else f"{site.residual:.2g}",
                site.folded_into or "",
            )
            for site in self.sites
        ]
        title = f"{self.model}: {len(self.sites)} sites to {self.to}, {self.parameters} parameters added"
        lines = [title, text_table(header, rows)]
        lines += [f"proved part by part, once per call of a part: {', '.join(self.parts)}"] if self.parts else []
        lines += [f"left as it was: {place}" for place in self.left]
        return "\n".join(lines)
