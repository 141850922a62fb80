"""Which networks of torchvision and timm can be swapped: the table in docs/surgery.md.

    python -m arelu_meta.survey            # all, several minutes
    python -m arelu_meta.survey resnet18 timm/levit_128s

Networks are built without weights, on the meta device where they allow it.
"""

import importlib.metadata
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from arelu_meta.errors import InputError, unknown
from arelu_meta.surgery.report import SwapReport
from arelu_meta.surgery.swap import swap

# One small member of each of these timm families.
# fmt: off
TIMM = (
    "beit_base_patch16_224", "botnet26t_256", "cait_xxs24_224", "convmixer_768_32", "convnextv2_tiny",
    "crossvit_tiny_240", "cspresnet50", "deit_tiny_patch16_224", "densenet121", "dla34", "dm_nfnet_f0", "dpn68",
    "edgenext_small", "efficientformer_l1", "efficientnet_lite0", "efficientvit_b0", "fastvit_t8",
    "focalnet_tiny_srf", "gernet_s", "ghostnet_100", "hrnet_w18_small", "levit_128s", "mixer_b16_224", "mixnet_s",
    "mobilenetv3_large_100", "mobilevit_s", "nest_tiny", "pit_ti_224", "poolformer_s12", "pvt_v2_b0", "regnetx_002",
    "repvgg_a0", "res2net50_26w_4s", "resnest14d", "resnet18", "resnetv2_50", "rexnet_100", "selecsls42b",
    "seresnet50", "skresnet18", "swinv2_tiny_window8_256", "tresnet_m", "twins_pcpvt_small", "vgg11",
    "visformer_tiny", "vit_tiny_patch16_224", "volo_d1_224", "vovnet39a", "xception41", "xcit_nano_12_p16_224",
)
# fmt: on


@dataclass(frozen=True)
class SurveyedNetwork:
    """What became of one network: a report, or the line that refuses."""

    name: str
    report: SwapReport | None = None
    refusal: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values for JSON; of a network that is refused, no numbers."""
        numbers: dict[str, int | None] = {"sites": None, "rewritten": None}
        if self.report is not None:
            numbers = {"sites": len(self.report.sites), "rewritten": len(self.report.rewritten)}
        return {"network": self.name, "swapped": self.report is not None, **numbers, "refused": self.refusal or None}


def surveyed_names() -> list[str]:
    """All surveyed networks: torchvision's classifiers, then timm's with `timm/` before the name."""
    from torchvision import models

    return [*models.list_models(module=models), *(f"timm/{name}" for name in TIMM)]


def build_surveyed(name: str, *, meta: bool = True, **options: Any) -> nn.Module:
    """Build a surveyed network without weights; `meta` leaves out the numbers, too."""
    if name not in surveyed_names():
        raise unknown("network", name, surveyed_names())
    # RegNet computes its widths with tensors while it is built.
    with torch.device("meta" if meta and not name.startswith("regnet_") else "cpu"):
        if name.startswith("timm/"):
            try:
                import timm
            except ModuleNotFoundError:
                raise InputError("timm is not installed; pip install 'arelu-meta[timm]'") from None
            network = timm.create_model(name.removeprefix("timm/"), pretrained=False, **options)
        else:
            from torchvision import models

            if name in ("googlenet", "inception_v3"):
                options = {"init_weights": False, **options}  # else it warns, and draws from a slow distribution
            network = models.get_model(name, weights=None, **options)
    return network.to("meta") if meta else network


def survey(chosen: Iterable[str], to: str = "arelu") -> Iterator[SurveyedNetwork]:
    """Swap each network and tell."""
    for name in chosen:
        network: Any = build_surveyed(name)
        side = 299 if name == "inception_v3" else 224
        size = network.default_cfg["input_size"] if name.startswith("timm/") else (3, side, side)
        try:
            yield SurveyedNetwork(name, swap(network, to, example=torch.zeros(2, *size, device="meta")))
        except InputError as error:
            yield SurveyedNetwork(name, refusal=str(error))


def survey_table(networks: Iterable[SurveyedNetwork]) -> str:
    """Write what became of the networks as the Markdown table of docs/surgery.md."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("torch", "torchvision", "timm")
        if importlib.util.find_spec(name)
    )
    done = list(networks)
    swapped = sum(network.report is not None for network in done)
    lines = [f"With {versions}: {swapped} of {len(done)} networks swapped, {len(done) - swapped} refused.", ""]
    lines += ["| network | sites | blocks rewritten | refused because |", "|---|---|---|---|"]
    for network in done:
        if network.report is None:
            reason = network.refusal.partition("; sites found")[0].partition(": ")[2]
            lines.append(f"| {network.name} | | | {reason} |")
        else:
            lines.append(f"| {network.name} | {len(network.report.sites)} | {len(network.report.rewritten)} | |")
    return "\n".join(lines)
