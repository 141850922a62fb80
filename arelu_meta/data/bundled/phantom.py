"""`phantom`: slices of made-up heads with lesions to outline, a stand-in for brain MRI segmentation.

Made after the LGG set (Buda, Saha and Mazurowski, 2019): each patient is one head in space, cut into 12 slices of
3x64x64. The channels are those of LGG: before contrast agent, FLAIR (where lesions are bright, and the scalp is too),
after contrast agent (where a lesion's rim is bright). The mask is 1 on the lesion; slices beyond its ends have an
empty one, and every patient has a lesion, as in LGG. Light falls off unevenly (coil bias) and there is noise. Of the
30 patients 20 train, 4 validate and 6 test.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage

from arelu_meta.data.bundled import smooth_noise
from arelu_meta.data.files import Arrays, cached_arrays
from arelu_meta.data.imageset import ImageSet, Provenance

VERSION = 2  # raise it when a slice changes: cached ones are then drawn anew
IMAGE_SIZE = 64
PATIENTS, SLICES = 30, 12
PATIENTS_OF_SUBSET = {"train": range(20), "validation": range(20, 24), "test": range(24, 30)}
SEED = 2019

# Brightness of each tissue in the three channels, 0..1.
AIR = (0.02, 0.02, 0.02)
SCALP = (0.62, 0.75, 0.68)
SKULL = (0.08, 0.07, 0.08)
GREY_MATTER = (0.42, 0.52, 0.46)
WHITE_MATTER = (0.55, 0.42, 0.58)
FLUID = (0.16, 0.12, 0.17)
LESION = (0.36, 0.74, 0.42)
RIM = (0.38, 0.78, 0.80)

Floats = NDArray[np.float64]


def load_phantom() -> ImageSet:
    """Read the phantom slices, drawing them first where the cache has none: 360 of 3x64x64 with masks (360, 1, 64, 64).

    `labels` is 1 where a slice shows a lesion; `groups` is the patient, and no patient is in two subsets.
    """
    arrays = cached_arrays("phantom", str(VERSION), _draw)
    masks = torch.from_numpy(arrays["masks"])
    patients = torch.arange(PATIENTS).repeat_interleave(SLICES)
    return ImageSet(
        name="phantom",
        images=torch.from_numpy(arrays["images"]),
        labels=masks.flatten(1).any(1).long(),
        class_names=("healthy", "lesion"),
        subsets={
            subset: torch.arange(members.start * SLICES, members.stop * SLICES)
            for subset, members in PATIENTS_OF_SUBSET.items()
        },
        masks=masks,
        groups=patients,
        group_names=tuple(f"patient_{number:02d}" for number in range(PATIENTS)),
        provenance=Provenance(source="drawn by arelu_meta", verified=True),
    )


def _draw() -> Arrays:
    """Draw all patients: `images` (360, 3, 64, 64) and `masks` (360, 1, 64, 64) of 0 and 1, patient after patient."""
    images, masks = zip(*(patient(np.random.default_rng([SEED, number])) for number in range(PATIENTS)), strict=True)
    return {"images": np.concatenate(images), "masks": np.concatenate(masks)}


def patient(random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Draw the slices of one head from below to above: images (12, 3, 64, 64) and masks (12, 1, 64, 64)."""
    place = _coordinates(random)
    folds = _texture(random, 1.6)
    head = np.sqrt((place**2).sum(0)) + 0.03 * _texture(random, 7)  # 1 at the skin
    up, back, right = place
    size = random.uniform(0.8, 1.25)
    # Distance from the middle of the nearer ventricle, 1 at its wall: two horns that spread to the front and the back.
    side = np.abs(right) - 0.09 - 0.8 * back**2
    ventricles = np.sqrt((side / (0.085 * size)) ** 2 + (back / (0.44 * size)) ** 2 + ((up - 0.08) / 0.36) ** 2)
    ventricles = ventricles + 0.15 * _texture(random, 3)
    lesion, core = _lesion(place, head, ventricles, random)

    tissues = [
        (head < 1, SCALP),
        (head < 0.93, SKULL),
        (head < 0.87, FLUID),
        (head + 0.035 * folds < 0.84, GREY_MATTER),
        (head + 0.10 * folds < 0.68, WHITE_MATTER),
        (ventricles < 1, FLUID),
        (lesion, RIM),
        (core, LESION),
    ]
    volume = np.broadcast_to(np.array(AIR)[:, None, None, None], (3, *head.shape)).copy()  # (3, 12, 64, 64)
    vivid = random.uniform(0.7, 1.0)  # how far a lesion stands out from the grey matter
    for where, brightness in tissues:
        volume[:, where] = np.array(brightness)[:, None]
    grey = np.array(GREY_MATTER)[:, None]
    volume[:, lesion] = grey + vivid * (volume[:, lesion] - grey)
    return _scan(volume, random), lesion[:, None].astype(np.uint8)


def _coordinates(random: np.random.Generator) -> Floats:
    """Place of every voxel in the head, (3, 12, 64, 64): up, back, right, each -1..1 from skin to skin."""
    up = np.linspace(-0.6, 0.72, SLICES) + random.normal(0, 0.03)
    axis = np.linspace(-1.09, 1.09, IMAGE_SIZE)
    up, back, right = np.meshgrid(up, axis, axis, indexing="ij")
    angle = random.normal(0, 0.08)
    back, right = back * np.cos(angle) - right * np.sin(angle), back * np.sin(angle) + right * np.cos(angle)
    back, right = back + random.normal(0, 0.02), right + random.normal(0, 0.02)
    return np.stack([up, back / random.uniform(0.94, 1.0), right / random.uniform(0.74, 0.84)])


def _texture(random: np.random.Generator, width: float) -> Floats:
    """Smooth noise in space with unit deviation, (12, 64, 64); slices lie further apart than pixels do."""
    noise = random.standard_normal((SLICES, IMAGE_SIZE, IMAGE_SIZE))
    smooth = ndimage.gaussian_filter(noise, (width / 4, width, width))
    return np.asarray(smooth / smooth.std())


def _lesion(
    place: Floats, head: Floats, ventricles: Floats, random: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Draw an irregular lump inside the brain and the part of it within its rim."""
    angle, far = random.uniform(0, 2 * np.pi), random.uniform(0.25, 0.6)
    centre = np.array([random.uniform(-0.35, 0.45), far * np.sin(angle), far * np.cos(angle)])
    radii = random.uniform(0.2, 0.5) * np.exp(random.normal(0, 0.15, 3)) * np.array([1.15, 1, 1])
    distance = np.sqrt((((place - centre[:, None, None, None]) / radii[:, None, None, None]) ** 2).sum(0))
    distance = distance + 0.22 * _texture(random, 3.5) + 0.08 * _texture(random, 1.2)
    inside = (head < 0.82) & (ventricles > 1)
    lesion = inside & (distance < 1)
    labelled, lumps = ndimage.label(lesion)
    if lumps > 1:  # crumbs that the noise has torn off are no lesions
        lesion = labelled == 1 + np.argmax(np.bincount(labelled.ravel())[1:])
    return lesion, lesion & (distance < random.uniform(0.75, 0.95))


def _scan(volume: Floats, random: np.random.Generator) -> NDArray[np.uint8]:
    """Scan tissue brightness (3, 12, 64, 64) with blur, mottled tissue, coil bias and noise: (12, 3, 64, 64)."""
    blurred = ndimage.gaussian_filter(volume, (0, 0.2, 0.6, 0.6))
    mottled = blurred * (1 + 0.05 * np.stack([_texture(random, 1.5) for _ in range(3)]))
    bias = 1 + 0.09 * smooth_noise(random, (3, 1), 3, IMAGE_SIZE)  # the same coil for all slices
    gain = random.uniform(0.85, 1.15, (3, 1, 1, 1))
    signal = mottled * bias * gain
    level = random.uniform(0.015, 0.04)
    noise = random.normal(0, level, (2, *signal.shape))
    magnitude = np.hypot(signal + noise[0], noise[1])  # Rician, as the magnitude of a complex signal is
    return np.asarray((magnitude * 255).clip(0, 255).round().astype(np.uint8).swapaxes(0, 1))
