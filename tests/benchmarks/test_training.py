"""The DataLoader loop that training is measured against, and the benchmarks that measure it."""

import pytest
import torch
from torch import nn
from torchvision import transforms

from arelu_meta.benchmarks.training import bench_epoch, bench_epoch_cropped, check_same_weights, loader_like
from arelu_meta.data.batches import Batches
from arelu_meta.data.inputs import fit_images
from arelu_meta.errors import RunError
from tests.tiny_images import digits


def test_the_loader_gives_the_batches_of_ours():
    """The same images in the same order, normalised alike; here each cut to 20x20 when drawn, and ours beforehand."""
    whole = digits()
    whole = whole.normalised_like(whole)
    cut = fit_images(whole, image_size=20, resize="crop")
    ours = Batches(cut, 64, torch.Generator().manual_seed(3))
    loader = loader_like(Batches(cut, 64, torch.Generator().manual_seed(3)), whole, transforms.CenterCrop(20))
    for (x, y), (other_x, other_y) in zip(ours, loader, strict=True):
        assert torch.equal(y, other_y)
        assert torch.allclose(x, other_x, atol=1e-6)


def test_other_work_is_refused():
    torch.manual_seed(0)
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    check_same_weights(one, [one])
    with pytest.raises(RunError, match=r"differ in weight by .*: not the same work"):
        check_same_weights(one, [one, other])


@pytest.mark.usefixtures("_no_sets")
@pytest.mark.parametrize(("bench", "name"), [(bench_epoch, "digits/train"), (bench_epoch_cropped, "street/train")])
def test_without_published_sets_they_run_on_bundled_images(bench, name: str):
    (report,) = bench(images=256, repeats=1)
    assert report.title.startswith(f"256 images of {name}")
    ours, *others, theirs = report.rows
    assert (ours.name, ours.ratio, theirs.name) == ("arelu_meta", 1.0, "DataLoader, 2 workers")
    assert theirs.ratio == pytest.approx(theirs.seconds / ours.seconds)
    assert [other.name for other in others] == ["arelu_meta --fused", "arelu_meta --no-channels-last"]
    assert ours.note == f"{256 / ours.seconds:.0f} images/s"
