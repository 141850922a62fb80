"""`glyphs`: characters of many scripts as if drawn by hand, an Omniglot that needs no download.

The plain letters of fifteen scripts from DejaVu Sans (inside matplotlib), each drawn 20 times at 1x28x28 with a pen of
varying width, rotated, sheared, scaled, shifted and wobbled. Letters that look alike (Latin A, Greek Alpha, Cyrillic A;
o and O) are one class, named after the first of them. The split is by script, so that testing is on alphabets never
seen in training, as in Lake, Salakhutdinov and Tenenbaum, Science 350 (2015). Of about 1,000 classes, Latin, Cyrillic
and Canadian syllabics train (61 %); Coptic, Hebrew, N'Ko, Georgian (both alphabets) and Old Italic validate (14 %);
Greek, Armenian, Arabic, Lao, Ogham and Tifinagh test (25 %).
"""

import unicodedata

import numpy as np
import torch
from matplotlib.ft2font import FT2Font
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from arelu_meta.data.bundled import font_path, font_provenance, open_font, smooth_noise
from arelu_meta.data.files import Arrays, cached_arrays
from arelu_meta.data.imageset import ImageSet

VERSION = 1  # raise it when a drawing changes: cached ones are then drawn anew
FONT = "DejaVuSans"
IMAGE_SIZE = 28
DRAWINGS = 20
SEED = 20061385

# Script -> (subset, first and last code point). The order decides which script keeps a letter that several share.
SCRIPTS: dict[str, tuple[str, int, int]] = {
    "latin": ("train", 0x0041, 0x02AF),
    "greek": ("test", 0x0370, 0x03E1),
    "coptic": ("validation", 0x03E2, 0x03EF),
    "cyrillic": ("train", 0x0400, 0x052F),
    "armenian": ("test", 0x0531, 0x0587),
    "hebrew": ("validation", 0x05D0, 0x05EA),
    "arabic": ("test", 0x0620, 0x06FF),
    "nko": ("validation", 0x07CA, 0x07EA),
    "lao": ("test", 0x0E81, 0x0EC4),
    "asomtavruli": ("validation", 0x10A0, 0x10C5),
    "georgian": ("validation", 0x10D0, 0x10FA),
    "canadian": ("train", 0x1401, 0x1676),
    "ogham": ("test", 0x1681, 0x169A),
    "tifinagh": ("test", 0x2D30, 0x2D67),
    "old_italic": ("validation", 0x10300, 0x1031F),
}

SCALE = 3  # outlines are kept at SCALE times the resolution of the drawings
INK_BOX = 19  # the longer side of a letter, in pixels of a drawing
SAME_SHAPE = 0.92  # correlation of two letters above which they are one class; case pairs such as o and O have more
BLOT = 3  # half a stroke of that many pixels is a dot blown up to the ink box, not a letter

Floats = NDArray[np.float64]


def load_glyphs() -> ImageSet:
    """Read the glyphs, drawing them first where the cache has none: 1x28x28, 20 images of each class, ink is bright.

    `groups` is the script of each image, `subsets` the images of the training, validation and test scripts.
    """
    provenance = font_provenance([FONT])
    arrays = cached_arrays("glyphs", f"{VERSION}/{provenance.files}", _draw)
    numbers, scripts = arrays["code_points"], tuple(SCRIPTS)
    first, last = (np.array([script[end] for script in SCRIPTS.values()]) for end in (1, 2))
    script_of_class = ((numbers[:, None] >= first) & (numbers[:, None] <= last)).argmax(1)  # (classes,)
    subset_of_class = np.array([SCRIPTS[scripts[script]][0] for script in script_of_class])
    labels = torch.arange(len(numbers)).repeat_interleave(DRAWINGS)
    return ImageSet(
        name="glyphs",
        images=torch.from_numpy(arrays["images"]),
        labels=labels,
        class_names=tuple(f"{scripts[s]}/{n:04X}" for s, n in zip(script_of_class, numbers, strict=True)),
        subsets={
            subset: torch.nonzero(torch.from_numpy(subset_of_class == subset)[labels]).squeeze(1)
            for subset in ("train", "validation", "test")
        },
        groups=torch.from_numpy(script_of_class)[labels],
        group_names=scripts,
        provenance=provenance,
    )


def _draw() -> Arrays:
    """Draw every class: `images` (classes * DRAWINGS, 1, 28, 28) and the `code_points` of the classes (classes,)."""
    # Accented letters are left out, since only the accent tells many of them apart.
    drawable = FT2Font(str(font_path(FONT))).get_charmap()
    plain = [
        number
        for _, first, last in SCRIPTS.values()
        for number in range(first, last + 1)
        if unicodedata.category(chr(number)) in ("Lu", "Ll", "Lo")
        and not unicodedata.decomposition(chr(number))
        and number in drawable
    ]
    letters = np.array(plain)
    outlines = np.stack([outline(chr(letter)) for letter in letters])  # (letters, 84, 84)
    written = [half_stroke(distance) < BLOT for distance in outlines]
    letters, outlines = letters[written], outlines[written]
    classes = distinct(outlines)
    drawings = [drawn(outlines[i], np.random.default_rng([SEED, letters[i]])) for i in classes]
    return {"images": np.concatenate(drawings)[:, None], "code_points": letters[classes]}


def outline(letter: str) -> Floats:
    """Signed distance to the outline of a letter as big as the ink box: (84, 84), in pixels of a drawing, ink positive.

    A distance can be sampled at any point and made thicker or thinner by adding a number, which a bitmap cannot.
    """
    mask = open_font(FONT, 128).getmask(letter, mode="L")
    ink = Image.frombytes("L", mask.size, bytes(mask))
    ink = ink.crop(ink.getbbox())
    zoom = INK_BOX * SCALE / max(ink.size)
    width, height = (max(1, round(zoom * side)) for side in ink.size)
    canvas = Image.new("L", (IMAGE_SIZE * SCALE, IMAGE_SIZE * SCALE))
    corner = ((canvas.width - width) // 2, (canvas.height - height) // 2)
    canvas.paste(ink.resize((width, height), Image.Resampling.BICUBIC), corner)
    inside = np.asarray(canvas) > 127
    distance = ndimage.distance_transform_edt(inside) - ndimage.distance_transform_edt(~inside)
    return np.asarray(distance / SCALE)


def half_stroke(distance: Floats) -> float:
    """Half the width of a letter's strokes: the median distance along their middle lines."""
    ridge = (distance == ndimage.maximum_filter(distance, 5)) & (distance > 1 / SCALE)
    return float(np.median(distance[ridge]))


def distinct(outlines: Floats) -> NDArray[np.int64]:
    """Numbers of the letters that look like none before them, in one pen, even when stretched or slanted a little."""
    stretch, shear = (grid.ravel() for grid in np.meshgrid([0, -0.08, 0.08], [0, -0.16, 0.16]))
    places = _places(_affine(stretch, shear))
    blurred = []  # of each letter in one pen, upright first, then stretched and slanted: (9, 784)
    for distance in outlines:
        sampled = ndimage.map_coordinates(distance, places, order=1, mode="nearest")
        ink = (0.5 + sampled + 1.1 - half_stroke(distance)).clip(0, 1)
        blurred.append(ndimage.gaussian_filter(ink, (0, 0.8, 0.8)).reshape(len(ink), -1))
    views = np.stack(blurred)  # (letters, views, 784)
    views -= views.mean(-1, keepdims=True)
    views /= np.linalg.norm(views, axis=-1, keepdims=True)
    upright = views[:, 0].T
    alike = np.max([views[:, view] @ upright for view in range(views.shape[1])], axis=0) > SAME_SHAPE
    alike |= alike.T  # (letters, letters)
    chosen: list[int] = []
    for letter in range(len(outlines)):
        if not alike[letter, chosen].any():
            chosen.append(letter)
    return np.array(chosen)


def _affine(stretch: Floats, shear: Floats) -> Floats:
    """Matrices (n, 2, 2) on (down, right) that make a letter narrower and higher by `stretch`, slanted by `shear`."""
    rows = [np.exp(stretch), 0 * shear, shear, np.exp(-stretch)]
    return np.asarray(np.stack(rows, axis=-1).reshape(-1, 2, 2))


def _places(affine: Floats, shift: Floats | float = 0.0, wobble: Floats | float = 0.0) -> Floats:
    """Places of the outline that the pixels of a drawing show: (2, n, 28, 28), in pixels of the outline."""
    paper = np.indices((IMAGE_SIZE, IMAGE_SIZE)) - (IMAGE_SIZE - 1) / 2 - shift  # (..., 2, 28, 28), from the centre
    back = np.linalg.inv(affine)
    points = (back[:, :, :, None, None] * np.expand_dims(paper, -4)).sum(2) + wobble  # (n, 2, 28, 28)
    return np.asarray(points.swapaxes(0, 1) * SCALE + (IMAGE_SIZE * SCALE - 1) / 2)


def drawn(distance: Floats, random: np.random.Generator) -> NDArray[np.uint8]:
    """Draw a letter DRAWINGS times: (DRAWINGS, 28, 28).

    The paper is mapped back onto the outline by an affine map and a smooth wobble; the pen has a width of its own that
    does not follow the size of the letter, and a pressure that changes along the stroke.
    """
    n = DRAWINGS
    angle, shear = random.normal(0, 0.13, n), random.normal(0, 0.15, n)
    scale = random.uniform(0.82, 1.1, n)
    stretch = random.normal(0, 0.07, n)  # narrower and higher, or wider and lower
    shift = random.uniform(-2, 2, (n, 2, 1, 1))
    wobble = smooth_noise(random, (n, 2), 5, IMAGE_SIZE)  # (n, 2, 28, 28)
    pressure = smooth_noise(random, (n,), 4, IMAGE_SIZE)  # (n, 28, 28)
    pen = random.uniform(0.75, 1.45, n)  # half its width, in pixels

    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]).transpose(2, 0, 1)  # (n, 2, 2)
    at = _places(turn @ _affine(stretch, shear) * scale[:, None, None], shift, 0.75 * wobble)
    sampled = ndimage.map_coordinates(distance, at, order=1, mode="nearest")
    width = pen - scale * half_stroke(distance)
    ink = 0.5 + scale[:, None, None] * sampled + width[:, None, None] + 0.12 * pressure
    return np.asarray((ink.clip(0, 1) * 255).round().astype(np.uint8))
