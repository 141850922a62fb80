"""A few-shot network as a traced graph: it adapts as the network does, and needs none of the code that built it."""

import copy
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from arelu_meta import backbones, learners
from arelu_meta.backbones.features import feature_network
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import first_line
from arelu_meta.kinds.few_shot.settings import LearnerSettings
from arelu_meta.kinds.finetune.spec import OWN
from arelu_meta.learners.functional_network import lent
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.learner import Learner
from arelu_meta.pretrained.installed import NETWORKS
from arelu_meta.registry import EVERYWHERE, own_code
from arelu_meta.store.connection import quiet
from arelu_meta.store.graphs import read_graph, trace

TOLERANCE = 1e-3  # of probabilities: the graph's operations add up in another order


class FeaturesNetwork(nn.Module):
    """A traced `FeatureNetwork` as a network that has the method `features`; its state is that of the network."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.graph = graph
        self.register_state_dict_post_hook(_rename("graph.network.", ""))
        self.register_load_state_dict_pre_hook(_rename("", "graph.network."))

    def features(self, x: Tensor) -> Tensor:
        """Give the features of images (N, C, H, W), (N, d)."""
        return self.graph(x)


def _rename(before: str, after: str) -> Callable[..., None]:
    """Give a hook that puts one prefix in place of another in a state dict."""

    def hook(_module: nn.Module, state: dict[str, Any], prefix: str, *_others: object) -> None:
        for name in [name for name in state if name.startswith(prefix + before)]:
            state[prefix + after + name.removeprefix(prefix + before)] = state.pop(name)

    return hook


def settings_of_graph(settings: LearnerSettings) -> LearnerSettings:
    """Let engine `func` adapt it where it can: `higher` patches modules, which those of a graph do not bear."""
    if settings.inner_loop.get("inner_optimizer", "sgd") != "sgd":
        return settings
    return replace(settings, engine="func")


def foreign_code(settings: LearnerSettings, network: nn.Module) -> list[str]:
    """Name the code of one's own that a network is made by and of: neither torch's nor ours."""
    parts = {kind: settings.network[kind] for kind in ("backbone", "activation") if kind in settings.network}
    there = set(EVERYWHERE)
    if backbones.is_pretrained(parts.get("backbone", "")):  # what builds it is needed wherever it is loaded
        there |= {"timm", "torchvision", *(installed.packages[0] for installed in NETWORKS.values())}
        parts = {kind: name for kind, name in parts.items() if kind != "backbone" and name != OWN}
    builders = {own_code(kind, name) for kind, name in parts.items()} - {""}
    kinds = {type(module) for module in network.modules()}
    foreign = {kind for kind in kinds if kind.__module__.partition(".")[0] not in there}
    return sorted(builders | {f"{kind.__module__}:{kind.__qualname__}" for kind in foreign})


def save_traced(learner: Learner, settings: LearnerSettings, inputs: Inputs, path: Path) -> str:
    """Trace the network of a learner and store the graph, if it adapts and answers as the network does.

    Args:
        learner: the learner, its network on any device.
        settings: what it is built by.
        inputs: what images its network takes.
        path: where the graph is written.

    Returns:
        Why it was not stored; empty where it was.
    """
    random, by_gradient = torch.Generator().manual_seed(0), isinstance(learner, GradientLearner)
    x = torch.randn(2 * settings.ways, inputs.channels, *inputs.size, generator=random)
    labels = torch.arange(settings.ways).repeat(2)
    if settings.regression:
        labels = x.flatten(1).sum(1, keepdim=True)
    network = copy.deepcopy(learner.network.eval()).cpu()
    device = next(learner.network.parameters()).device
    try:
        # As episodes are computed, with batch statistics; the exporter writes the whole graph where it fails.
        with quiet(), redirect_stderr(StringIO()), lent(network) if by_gradient else nullcontext():
            program = trace(network if by_gradient else feature_network(network, x[:2]), x)
        traced = _learner(
            program, settings, {name: value.cpu() for name, value in learner.state().state_dict().items()}
        )
        expected = learner.adapt(x.to(device), labels.to(device)).logits(x[:3].to(device)).cpu()
        found = traced.adapt(x, labels).logits(x[:3])
    except Exception as error:  # whatever a network of one's own raises under torch.export
        return first_line(error)
    if not settings.regression:
        found, expected = found.softmax(-1), expected.softmax(-1)
    if not torch.allclose(found, expected, atol=TOLERANCE):
        return "its graph adapts otherwise than the network itself"
    torch.export.save(program, path)
    return ""


def load_traced(path: Path, settings: LearnerSettings, state: Mapping[str, Tensor], source: str) -> Learner:
    """Build the learner around a stored graph and give it its weights."""
    return _learner(read_graph(path, source), settings, state)


def _learner(program: ExportedProgram, settings: LearnerSettings, state: Mapping[str, Tensor]) -> Learner:
    graph = torch.export.unflatten(program)
    for module in graph.modules():  # the shapes of the trace are symbols, which cannot be copied
        for node in getattr(module, "graph", torch.fx.Graph()).nodes:
            node.meta.clear()
    by_gradient = learners.entry(settings.method).by_gradient
    learner = settings.build_learner(graph if by_gradient else FeaturesNetwork(graph))
    learner.load_state(state)
    return learner
