"""A few-shot model adapted to a folder of labelled images, to answer image files as any stored classifier does."""

from pathlib import Path

from arelu_meta.data.files.image_folders import files_by_class
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.store.models import FEW_SHOT_FILE, open_model
from arelu_meta.store.predicting import LoadedModel
from arelu_meta.store.served import ServedNetwork


def load_with_support(source: str | Path, support: str | Path) -> LoadedModel:
    """Load a few-shot model and adapt it to labelled images.

    Args:
        source: as in `FewShotModel.load`: a folder, the id of an MLflow run, or an MLflow model URI
        support: a folder with a folder of images for each class; their names are the classes

    Returns:
        A classifier of these classes, with `predict`.

    Raises:
        InputError: it is no few-shot model, the folder has fewer than two classes, more than the head of the model
            has outputs, or files that are no images.
    """
    folder, stored = Path(support).expanduser(), open_model(source)
    if not folder.is_dir():
        raise InputError(f"no folder {str(support)!r}; `support` is a folder with a folder of images for each class")
    if not (stored.folder / FEW_SHOT_FILE).is_file() and not (stored.folder / "images.json").is_file():
        raise InputError(f"{source} is no few-shot model and adapts to no images; leave `support` out")
    rows = files_by_class(folder)
    classes = sorted({label for _, label, _ in rows})
    if len(classes) < 2:
        raise InputError(f"{folder} holds one class, {classes[0]!r}; a classifier needs two or more")
    model = FewShotModel.load(source)
    adapted = model.adapt([file for file, _, _ in rows], [classes.index(label) for _, label, _ in rows])
    served = ServedNetwork(adapted.logits, model.inputs, classes)
    return LoadedModel(str(source), served, together=model.transductive)
