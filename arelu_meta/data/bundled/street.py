"""`street`: house-number-like digits in many fonts on cluttered colour backgrounds, a stand-in target for transfer.

Made after the cropped digits of SVHN (Netzer et al., 2011): 3x32x32, the digit in the middle, its neighbours cut off
at the sides, uneven light, blur, low contrast, noise. The fonts are those inside matplotlib. 10,000 images train and
4,000 test; half of the test images are in fonts of UNSEEN_FONTS, which no training image is in. `groups` is the font.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from arelu_meta.data.bundled import font_provenance, open_font, smooth_noise
from arelu_meta.data.files import Arrays, cached_arrays
from arelu_meta.data.imageset import ImageSet

VERSION = 1  # raise it when an image changes: cached ones are then drawn anew
IMAGE_SIZE = 32
TRAIN, TEST = 10_000, 4_000
SEED = 1102

SEEN_FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic"),
    *("cmr10", "cmb10", "cmti10"),
)
UNSEEN_FONTS = ("DejaVuSansMono-Bold", "DejaVuSerif-Italic", "STIXGeneralBolIta", "cmss10", "cmtt10")
FONTS = SEEN_FONTS + UNSEEN_FONTS

CANVAS, TYPE_SIZE = 64, 48  # images are drawn at twice their size, then reduced


def load_street() -> ImageSet:
    """Read the street digits, drawing them first where the cache has none: 3x32x32, subsets `train` and `test`."""
    provenance = font_provenance(FONTS)
    arrays = cached_arrays("street", f"{VERSION}/{provenance.files}", _draw)
    return ImageSet(
        name="street",
        images=torch.from_numpy(arrays["images"]),
        labels=torch.from_numpy(arrays["labels"]),
        class_names=tuple("0123456789"),
        subsets={"train": torch.arange(TRAIN), "test": torch.arange(TRAIN, TRAIN + TEST)},
        groups=torch.from_numpy(arrays["fonts"]),
        group_names=FONTS,
        provenance=provenance,
    )


def _draw() -> Arrays:
    """Draw all images: `images` (N, 3, 32, 32), `labels` and `fonts` (N,); digits equally often, train first."""
    numbers = np.arange(TRAIN + TEST)
    labels, turns = numbers % 10, numbers // 10  # a font serves all ten digits, then the next has its turn
    seen, unseen = turns % len(SEEN_FONTS), len(SEEN_FONTS) + turns % len(UNSEEN_FONTS)
    fonts = np.where((numbers >= TRAIN) & (turns // len(SEEN_FONTS) % 2 == 1), unseen, seen)
    images = [
        draw_image(str(label), FONTS[font], np.random.default_rng([SEED, number]))
        for number, label, font in zip(numbers, labels, fonts, strict=True)
    ]
    return {"images": np.stack(images), "labels": labels, "fonts": fonts}


def draw_image(digit: str, font: str, random: np.random.Generator) -> NDArray[np.uint8]:
    """Draw one digit as a street camera might have seen it: (3, 32, 32)."""
    wall, paint = colours(random)
    scene = background(wall, random)
    ink = number_plate(digit, font, random)
    if random.random() < 0.3:  # a shadow or a raised edge
        edge = tuple(int(value) for value in (wall * random.uniform(0.3, 0.7)).clip(0, 255))
        scene.paste(edge, (int(random.integers(1, 4)), int(random.integers(1, 4))), ink)
    scene.paste(tuple(int(value) for value in paint), (0, 0), ink)
    scene = scene.reduce(CANVAS // IMAGE_SIZE).filter(ImageFilter.GaussianBlur(float(random.uniform(0.1, 1.1))))

    values = np.asarray(scene, dtype=np.float64).transpose(2, 0, 1)  # (3, 32, 32)
    light = 1 + 0.12 * smooth_noise(random, (1,), 3, IMAGE_SIZE)
    noise = random.normal(0, random.uniform(1, 9), values.shape)
    return np.asarray((values * light + noise).clip(0, 255).round().astype(np.uint8))


def colours(random: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw the colours of wall and paint, mostly greyish as streets are, and apart enough in brightness to be read."""
    apart = random.uniform(40, 150) * random.choice([-1, 1])
    brightness = random.uniform(max(25.0, 25 - apart), min(230.0, 230 - apart))
    tint = random.normal(0, random.choice([6, 25]), (2, 3))
    return (brightness + tint[0]).clip(0, 255), (brightness + apart + tint[1]).clip(0, 255)


def background(wall: NDArray[np.float64], random: np.random.Generator) -> Image.Image:
    """Draw a wall with stains and a few boards, frames, pipes and cables: an image of 64 x 64."""
    stains = wall + random.normal(0, 9, (5, 5, 3))
    scene = Image.fromarray(stains.clip(0, 255).astype(np.uint8)).resize((CANVAS, CANVAS), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(scene)
    for _ in range(random.integers(1, 6)):
        near = (wall + random.normal(0, 20) + random.normal(0, 14, 3)).clip(0, 255)
        colour = tuple(int(value) for value in near)
        x, y = (float(value) for value in random.uniform(-10, CANVAS + 10, 2))
        width, height = (float(value) for value in random.uniform(6, 45, 2))
        match int(random.integers(4)):
            case 0:
                pen.rectangle((x, y, x + width, y + height), fill=colour)
            case 1:
                pen.line((x, -1, x + width - 25, CANVAS + 1), fill=colour, width=int(random.integers(2, 8)))
            case 2:
                pen.line((-1, y, CANVAS + 1, y + height - 25), fill=colour, width=int(random.integers(2, 8)))
            case _:
                pen.ellipse((x, y, x + width, y + height), outline=colour, width=int(random.integers(2, 6)))
    return scene


def number_plate(digit: str, font: str, random: np.random.Generator) -> Image.Image:
    """Draw the digit in the middle with its neighbours at the sides, turned and slanted: the ink as 64 x 64, L."""
    type_face = open_font(font, TYPE_SIZE)
    strip = Image.new("L", (4 * TYPE_SIZE, 2 * TYPE_SIZE))
    pen = ImageDraw.Draw(strip)
    left, top, right, bottom = type_face.getbbox(digit)
    middle = strip.width / 2
    pen.text((middle - (left + right) / 2, strip.height / 2 - (top + bottom) / 2), digit, fill=255, font=type_face)
    gap = float(random.uniform(0.02, 0.2)) * TYPE_SIZE
    for side in (-1, 1):
        if random.random() < 0.55:
            neighbour = str(random.integers(10))
            begin, _, end, _ = type_face.getbbox(neighbour)
            centre = middle + side * ((right - left) / 2 + gap + (end - begin) / 2)
            place = (centre - (begin + end) / 2, strip.height / 2 - (top + bottom) / 2)
            pen.text(place, neighbour, fill=255, font=type_face)
    height = random.uniform(0.62, 0.95) * CANVAS  # of the digit, in the image
    zoom = (bottom - top) / height  # pixels of the strip for one of the image
    narrow = zoom * float(np.exp(random.normal(0, 0.12)))
    angle, shear = random.normal(0, 0.09), random.normal(0, 0.1)
    cos, sin = float(np.cos(angle)), float(np.sin(angle))
    a, b, d, e = narrow * cos, narrow * (sin + shear), -zoom * sin, zoom * cos
    x, y = random.normal(0, 1.6, 2) + CANVAS / 2
    offset = (middle - a * x - b * y, strip.height / 2 - d * x - e * y)
    return strip.transform(
        (CANVAS, CANVAS), Image.Transform.AFFINE, (a, b, offset[0], d, e, offset[1]), Image.Resampling.BILINEAR
    )
