"""Figures of the AReLU paper that look into trained networks, and at MNIST-Conv itself."""

import torch
from matplotlib.figure import Figure

from arelu_meta import activations, backbones
from arelu_meta.errors import InputError
from arelu_meta.kinds.look import Trained, cam_of_runs, maps_of_runs, open_runs
from arelu_meta.paper.finished import Finished
from arelu_meta.pictures.figures import overlay_rows
from arelu_meta.pictures.network_sketch import network_sketch
from arelu_meta.training.forward import predict

ARMS = ("relu", "arelu")
IMAGES, SLICES = 6, 4


def feature_maps(runs: Finished, root: str | None) -> Figure:
    """Figure attention, right: feature maps of a test image before and after the first activation."""
    return maps_of_runs(_open(runs, root), layer="block1.2")


def first_layer_cam(runs: Finished, root: str | None) -> Figure:
    """Figure gradcam: Grad-CAM of the first layer's feature maps on test images."""
    return cam_of_runs(_open(runs, root), layer="stem", images=IMAGES)


def overlays(runs: Finished, root: str | None) -> Figure:
    """Figure seg, left: the slices with the largest tumours, with outlines of prediction and truth."""
    trained = _open(runs, root)
    test = trained[0].images
    if test.masks is None:
        raise InputError(f"{test.name} has no masks to draw")
    shown = test.masks.flatten(1).sum(1).argsort(descending=True)[:SLICES].cpu()
    slices = test.subset(shown)
    predicted = {one.name: predict(one.network, slices) > 0 for one in trained}
    return overlay_rows(slices.tensor.cpu(), predicted, test.masks[shown].cpu() > 0)


def mnist_conv(_runs: Finished, _root: str | None) -> Figure:
    """Figure conv_mnist: the layers of MNIST-Conv."""
    network = backbones.build(
        "mnist_conv", activation=activations.factory("arelu"), channels=1, image_size=(28, 28), classes=10
    )
    return network_sketch(network, torch.zeros(1, 28, 28), title="MNIST-Conv")


def _open(runs: Finished, root: str | None) -> list[Trained]:
    return open_runs(runs.one_of_each("activation", ARMS), root=root)
