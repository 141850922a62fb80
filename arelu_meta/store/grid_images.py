"""Pictures of a run for the image grid of the MLflow UI, where those of several runs stand side by side.

The files are those of `mlflow.log_image(key=..., step=...)`, except that their names depend on key and step alone:
what is sent or drawn again replaces what is there. MLflow itself would add a second picture.
"""

import io
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mlflow import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_IMAGES
from PIL import Image

from arelu_meta.store.connection import attaching
from arelu_meta.store.sources import store_uri

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "images"
TAG = {MLFLOW_LOGGED_IMAGES: "True"}
"""Tag of a run by which the UI knows that it has such pictures."""
PREVIEW = 512  # pixels of the longer side: MLflow's own 256 leave the words of a figure unreadable


def grid_images(drawn: bytes, key: str, step: int) -> Iterator[tuple[str, Image.Image]]:
    """Give a picture as the UI wants it: whole, and a small one for the grid, by the names of their files.

    Args:
        drawn: the picture, as a PNG.
        key: what it shows; the grid has a card for each key.
        step: the step that it is of.
    """
    whole = Image.open(io.BytesIO(drawn))
    small = whole.copy()
    small.thumbnail((PREVIEW, PREVIEW))
    name = f"{key.replace('/', '~')}+step+{step}+timestamp+1+{uuid.uuid5(uuid.NAMESPACE_URL, f'{key}/{step}')}"
    yield f"{name}.png", whole
    yield f"{name}+compressed.webp", small


def pictures_of(client: MlflowClient, run_id: str) -> dict[str, int]:
    """List the pictures of a run: by key the last step there is one of."""
    found: dict[str, int] = {}
    for file in client.list_artifacts(run_id, FOLDER):
        key, _, rest = file.path.removeprefix(f"{FOLDER}/").partition("+step+")
        if rest:
            key, step = key.replace("~", "/"), int(rest.partition("+")[0])
            found[key] = max(step, found.get(key, step))
    return found


def attach_image(run_id: str, figure: "Figure", key: str, step: int = 0) -> None:
    """Add a figure to the image grid of a stored run.

    Raises:
        InputError: the store does not take it.
    """
    client, drawn = MlflowClient(store_uri()), io.BytesIO()
    figure.savefig(drawn, format="png")
    with attaching(run_id, key), tempfile.TemporaryDirectory() as folder:
        for name, image in grid_images(drawn.getvalue(), key, step):
            image.save(Path(folder) / name)
        client.log_artifacts(run_id, folder, FOLDER)
        for name, value in TAG.items():
            client.set_tag(run_id, name, value)
