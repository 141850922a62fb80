"""`digits`: the 1,797 handwritten digits that come with scikit-learn (Alpaydin and Kaynak, UCI, 1998).

They are 8x8 with 17 grey levels; here they are enlarged to 28x28 so that networks made for MNIST take them as they are.
"""

import torch
import torch.nn.functional as F

from arelu_meta.data.imageset import ImageSet, Provenance

IMAGE_SIZE = 28


def load_digits() -> ImageSet:
    """Read the digits: 1,797 images of 1x28x28, ten classes of 174 to 183 images."""
    from sklearn.datasets import load_digits as load_from_sklearn

    bunch = load_from_sklearn()
    small = torch.from_numpy(bunch.images).float().unsqueeze(1) * (255 / 16)  # (N, 1, 8, 8), levels 0..16
    images = F.interpolate(small, size=(IMAGE_SIZE, IMAGE_SIZE), mode="bilinear", align_corners=False)
    return ImageSet(
        name="digits",
        images=images.round().to(torch.uint8),
        labels=torch.from_numpy(bunch.target).long(),
        class_names=tuple(str(name) for name in bunch.target_names),
        provenance=Provenance(source="scikit-learn load_digits", verified=True),
    )
