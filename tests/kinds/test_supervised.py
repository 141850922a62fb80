import pytest
import torch
import torch.nn.functional as F
from scipy import integrate
from torch import nn

from arelu_meta import activations, backbones
from arelu_meta.data.imageset import ImageSet
from arelu_meta.kinds import run
from arelu_meta.kinds.supervised import LayerLog
from arelu_meta.pictures.layer_statistics import layer_statistics
from tests.supervised_runs import classify_spec, no_model
from tests.tiny_images import digits, discs
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history

__all__ = ["no_model"]  # a fixture


def network(activation: str = "arelu") -> nn.Module:
    torch.manual_seed(0)
    factory = activations.factory(activation)
    return backbones.build("mnist_conv", activation=factory, channels=1, image_size=(28, 28), classes=10)


@pytest.mark.parametrize(("count", "probes"), [(1, 1), (60, 2), (200, 4), (5000, 32)])
def test_a_fiftieth_of_the_images_probes(count: int, probes: int):
    """Evenly spread: numbers 0, 50, 100, 150 of 200."""
    pixels = (torch.arange(count) % 251).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 28, 28)
    images = ImageSet("ramp", pixels, torch.arange(count) % 10, tuple("abcdefghij"))
    log = LayerLog(network(), images, F.cross_entropy)
    assert len(log.x) == len(log.y) == probes
    if count == 200:
        assert (log.x[:, 0, 0, 0] * 255).round().tolist() == [0, 50, 100, 150]


def test_values_are_those_of_layer_statistics_in_training_mode():
    net, images = network(), digits()
    log = LayerLog(net, images, F.cross_entropy)
    net.eval()
    found = log.measure(3)
    assert not net.training
    wanted = layer_statistics(net.train(), log.x, log.y)
    assert found == {
        f"layers/block{number}.2/{quantity}": pytest.approx(getattr(wanted[f"block{number}.2"], field))
        for number in (1, 2, 3)
        for quantity, field in (("rms", "rms"), ("gradient", "output_gradient"), ("dead_alpha", "dead_alpha"))
    }
    assert log.courses["alpha"] == {f"block{n}.2": [(3, pytest.approx(0.9))] for n in (1, 2, 3)}
    assert log.courses["beta"]["block2.2"] == [(3, 2.0)]


def test_segmentation_probes_with_masks():
    images = discs()
    log = LayerLog(nn.Sequential(nn.Conv2d(1, 1, 1), activations.build("prelu")), images, lambda x, y: (x * y).sum())
    assert torch.equal(log.y, images.masks[[0, 12]].float())
    assert set(log.measure(1)) == {"layers/1/rms", "layers/1/gradient"}
    assert log.courses["weight"] == {"1": [(1, 0.25)]}


def test_figure_and_state():
    log = LayerLog(network(), digits(), F.cross_entropy)
    assert log.figure(title="nothing yet") is None
    log.measure(0)
    again = LayerLog(network(), digits(), F.cross_entropy)
    again.courses = log.courses
    again.measure(1)
    panels = [axes.get_ylabel() for axes in again.figure(title="x").axes if axes.get_visible()]
    assert panels == ["alpha, as learned", "beta, as learned", "activation RMS", "gradient norm of the output"]
    assert [epoch for epoch, _ in again.courses["rms"]["block1.2"]] == [0, 1]
    nn.init.constant_(again.network.block1[2].alpha, 1.5)
    again.measure(2)
    assert again.figure(title="x").axes[4].get_ylabel() == "share of dead alpha"


@pytest.mark.parametrize("activation", ["arelu", None])
def test_switched_off_or_without_activations(activation: str | None):
    net = network(activation) if activation else nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    log = LayerLog(net, digits(), F.cross_entropy, enabled=activation is None)
    assert log.measure(0) == {}
    assert log.figure(title="") is None


@MLFLOW_WARNINGS
@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(("lr", "patience"), [(0.02, None), (1e-12, 2)])
def test_speed_is_logged_by_epoch(store_uri: str, lr: float, patience: int | None):
    """What learns nothing stops after three of six epochs; what is kept stays where it is."""
    result = run(classify_spec(training={"lr": lr, "epochs": 6, "patience": patience}))
    history = metric_history(store_uri, result.run_id)
    scores = [score for _, score in history["validation/accuracy"]]
    assert (len(scores) < 6) == (patience is not None)
    whole = [*scores, *[max(scores)] * (6 - len(scores))]
    assert history["validation/accuracy_area"] == [(6, pytest.approx(integrate.trapezoid(whole) / 5))]
    reached = {level for level in (50, 60, 70, 80, 90, 95, 99) if max(scores) >= level / 100}
    assert {name for name in history if "epochs_to" in name} == {f"validation/epochs_to_{level}" for level in reached}
