import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as vision

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import fit_images, from_metadata, inputs_of
from arelu_meta.errors import InputError


def made(channels: int = 3, height: int = 12, width: int = 12, *, masks: bool = False) -> ImageSet:
    draw = torch.Generator().manual_seed(1)
    images = torch.randint(256, (5, channels, height, width), generator=draw, dtype=torch.uint8)
    inside = (images[:, :1] > 127).to(torch.uint8) if masks else None
    return ImageSet("made", images, torch.tensor([0, 1, 0, 1, 1]), ("a", "b"), masks=inside)


def test_zero_leaves_everything_as_it_is():
    images = made(masks=True)
    fitted = fit_images(images)
    assert torch.equal(fitted.images, images.images)
    assert torch.equal(fitted.masks, images.masks)
    assert torch.equal(fit_images(images, channels=3, image_size=12).images, images.images)


def test_grey_becomes_colour_by_repetition():
    images = made(1)
    fitted = fit_images(images, channels=3)
    assert fitted.images.shape == (5, 3, 12, 12)
    for channel in range(3):
        assert torch.equal(fitted.images[:, channel], images.images[:, 0])
    assert torch.equal(fitted.labels, images.labels)


def test_colour_becomes_grey_as_in_pil():
    """PIL computes the same luminance in fixed point, which may round the other way."""
    images = made(3)
    grey = fit_images(images, channels=1).images[:, 0].int()
    pil = [np.asarray(Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")) for image in images.images]
    assert (grey - torch.from_numpy(np.stack(pil)).int()).abs().max() <= 1


def test_luminance_of_pure_colours():
    """255 times 0.299, 0.587, 0.114 is 76.2, 149.7, 29.1; together 255."""
    colours = 255 * torch.cat([torch.eye(3), torch.ones(1, 3)]).to(torch.uint8).view(4, 3, 1, 1)
    images = ImageSet("pure", colours, torch.zeros(4).long(), ("a",))
    assert fit_images(images, channels=1).images.flatten().tolist() == [76, 150, 29, 255]


def test_other_channel_counts_are_refused():
    with pytest.raises(InputError, match="made has 3 channels, which cannot be turned into 4"):
        fit_images(made(3), channels=4)
    with pytest.raises(InputError, match="made has 2 channels, which cannot be turned into 1"):
        fit_images(made(2), channels=1)


@pytest.mark.parametrize(("height", "width"), [(12, 12), (12, 15)])
def test_crop_is_the_centre(height: int, width: int):
    """12 to 8: two off each side. 15 to 8: seven too many, three of them on the left."""
    images = made(3, height, width)
    left = {12: 2, 15: 3}[width]
    fitted = fit_images(images, image_size=8, resize="crop")
    assert torch.equal(fitted.images, images.images[:, :, 2:10, left : left + 8])


def test_nothing_larger_can_be_cut_out():
    with pytest.raises(InputError, match="12x12; 13x13 cannot be cut out of them, set `resize` to scale"):
        fit_images(made(), image_size=13, resize="crop")


@pytest.mark.parametrize(("height", "width"), [(12, 15), (19, 12), (12, 12)])
@pytest.mark.parametrize("size", [6, 9, 20])
def test_scale_is_torchvisions_resize_and_centre_crop(height: int, width: int, size: int):
    images = made(3, height, width)
    wanted = vision.center_crop(vision.resize(images.images, [size], antialias=True), [size, size])
    fitted = fit_images(images, image_size=size).images
    assert fitted.dtype == torch.uint8
    assert (fitted.int() - wanted.int()).abs().max() <= 1


def test_a_share_of_the_shorter_side_is_cut_out_as_networks_are_published():
    """torchvision's `Resize(16)` and `CenterCrop(14)`: 14 / 0.875 is 16."""
    images = made(3, 24, 31)
    wanted = vision.center_crop(vision.resize(images.images, [16], antialias=True), [14, 14])
    fitted = fit_images(images, image_size=14, crop_pct=0.875).images
    assert (fitted.int() - wanted.int()).abs().max() <= 1


@pytest.mark.parametrize("size", [6, 20])
def test_squash_scales_both_sides(size: int):
    images = made(3, 12, 15)
    wanted = vision.resize(images.images, [size, size], antialias=True)
    fitted = fit_images(images, image_size=size, resize="squash").images
    assert (fitted.int() - wanted.int()).abs().max() <= 1


def test_an_even_image_stays_even():
    images = ImageSet("even", torch.full((1, 1, 10, 10), 255, dtype=torch.uint8), torch.zeros(1).long(), ("a",))
    assert fit_images(images, image_size=7).images.unique().tolist() == [255]


def test_scaled_masks_keep_their_values_and_places():
    """Twice as large: every pixel of a mask becomes a square of four."""
    images = made(masks=True)
    fitted = fit_images(images, image_size=24)
    assert torch.equal(fitted.masks, images.masks.repeat_interleave(2, 2).repeat_interleave(2, 3))


def test_masks_of_wide_images_are_cut_where_these_are():
    """8 to 4, and 12 columns to 6: one off each side, two of the mask's pixels."""
    pixels = torch.zeros(1, 1, 8, 12, dtype=torch.uint8)
    pixels[:, :, 2:6, 2:8] = 255
    masks = (pixels > 127).to(torch.uint8)
    wide = ImageSet("wide", pixels, torch.zeros(1, dtype=torch.int64), ("a",), masks=masks)
    fitted = fit_images(wide, image_size=4)
    assert fitted.masks[0, 0].tolist() == [[0, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    assert torch.equal(fitted.masks, (fitted.images > 127).to(torch.uint8))


def test_masks_are_cropped_where_their_images_are():
    images = made(1, masks=True)
    fitted = fit_images(images, image_size=8, resize="crop")
    assert torch.equal(fitted.masks, images.masks[:, :, 2:10, 2:10])
    assert torch.equal(fitted.masks, (fitted.images > 127).to(torch.uint8))


def test_vectors_have_no_shape_to_be_brought_to():
    vectors = ImageSet("rows", torch.rand(4, 3, 1, 1), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    assert fit_images(vectors) is vectors
    for wanted, said in (({"channels": 1}, "`channels` 1"), ({"image_size": 8}, "`image_size` 8")):
        with pytest.raises(InputError, match=f"rows holds vectors of 3 features, and {said} is of images"):
            fit_images(vectors, **wanted)
    inputs = inputs_of(vectors.normalised_like(vectors))
    assert (inputs.vectors, inputs.channels, inputs.size) == (True, 3, (1, 1))
    assert from_metadata(inputs.metadata()) == inputs
    assert str(inputs).startswith("3 features, mean ")
