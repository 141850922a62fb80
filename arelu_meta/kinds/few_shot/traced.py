"""A few-shot network as a traced graph: it adapts as the network does, and needs none of the code that built it."""

import copy
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from arelu_meta import learners
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import first_line
from arelu_meta.kinds.few_shot.settings import LearnerSettings
from arelu_meta.learners.functional_network import lent
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.learner import Learner
from arelu_meta.store.connection import quiet
from arelu_meta.store.graphs import read_graph, trace

OURS = ("torch", "arelu_meta")  # packages that are there wherever a model is loaded
TOLERANCE = 1e-3  # of probabilities: the graph's operations add up in another order


class FeaturesForward(nn.Module):
    """The method `features` of a network as a forward pass, which can be traced."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Give the features of images (N, C, H, W), (N, d)."""
        features: Callable[[Tensor], Tensor] = getattr(self.network, "features")  # noqa: B009
        return features(x)


class FeaturesNetwork(nn.Module):
    """A traced forward pass of features as a network that has the method `features`."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.graph = graph

    def features(self, x: Tensor) -> Tensor:
        """Give the features of images (N, C, H, W), (N, d)."""
        return self.graph(x)


def settings_of_graph(settings: LearnerSettings) -> LearnerSettings:
    """Let engine `func` adapt it where it can: `higher` patches modules, which those of a graph do not bear."""
    if settings.inner_loop.get("inner_optimizer", "sgd") != "sgd":
        return settings
    return replace(settings, engine="func")


def foreign_classes(network: nn.Module) -> list[str]:
    """Name the classes in a network that are code of one's own: neither torch's nor ours."""
    kinds = {type(module) for module in network.modules()}
    foreign = [kind for kind in kinds if kind.__module__.partition(".")[0] not in OURS]
    return sorted(f"{kind.__module__}:{kind.__qualname__}" for kind in foreign)


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
    network = copy.deepcopy(learner.network.eval()).cpu()
    device = next(learner.network.parameters()).device
    try:
        # As episodes are computed, with batch statistics; the exporter writes the whole graph where it fails.
        with quiet(), redirect_stderr(StringIO()), lent(network) if by_gradient else nullcontext():
            program = trace(network if by_gradient else FeaturesForward(network), x)
        traced = _learner(
            program, settings, {name: value.cpu() for name, value in learner.state().state_dict().items()}
        )
        expected = learner.adapt(x.to(device), labels.to(device)).logits(x[:3].to(device)).cpu()
        found = traced.adapt(x, labels).logits(x[:3])
    except Exception as error:  # whatever a network of one's own raises under torch.export
        return first_line(error)
    if not torch.allclose(found.softmax(-1), expected.softmax(-1), atol=TOLERANCE):
        return "its graph adapts otherwise than the network itself"
    torch.export.save(program, path)
    return ""


def load_traced(path: Path, settings: LearnerSettings, state: Mapping[str, Tensor], source: str) -> Learner:
    """Build the learner around a stored graph and give it its weights."""
    return _learner(read_graph(path, source), settings, state)


def _learner(program: ExportedProgram, settings: LearnerSettings, state: Mapping[str, Tensor]) -> Learner:
    graph = torch.export.unflatten(program)
    if not learners.entry(settings.method).by_gradient:
        return settings.build_learner(FeaturesNetwork(graph))  # the graph has its weights in it
    learner = settings.build_learner(graph)
    learner.load_state(state)
    return learner
