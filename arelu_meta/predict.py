"""Answer new images with a trained network: their classes, or the pixels that a segmentation marks.

python -m arelu_meta.predict RUN new_photos/
python -m arelu_meta.predict models:/birds/1 a.jpg b.jpg --csv answers.csv --sheet answers.png
python -m arelu_meta.predict runs/adapt-... new_photos/ --skip-broken --json > answers.json
python -m arelu_meta.predict FEW_SHOT_RUN new_photos/ --support labelled_photos/
python -m arelu_meta.predict SEGMENT_RUN slices/ --output masks/
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from arelu_meta.console import command_line, output, progress
from arelu_meta.console.tables import text_table
from arelu_meta.errors import InputError
from arelu_meta.store.sources import check_given

if TYPE_CHECKING:
    from pandas import DataFrame

    from arelu_meta.analysis.estimates import Estimate
    from arelu_meta.store.marking import SegmentationModel
    from arelu_meta.store.predicting import LoadedModel, Predictions

SHOWN = 40  # rows of the table; a file has all


def command(argv: Sequence[str] | None = None) -> None:
    """Load, answer, write and say."""
    given = _parser().parse_args(argv)
    for path in filter(None, (given.csv, given.sheet)):
        if not path.parent.is_dir() or path.is_dir():
            raise InputError(f"cannot write {path}: its folder is not there, or it is a folder; choose another")
    for place in given.images:
        if not Path(place).expanduser().exists():  # said before torch is loaded
            raise InputError(f"no file or folder {place!r}; check the path")
    check_given(given.model)
    with progress.working(f"loading torch and {given.model}", in_logs="torch" not in sys.modules):
        from arelu_meta.store.image_files import find_images
        from arelu_meta.store.marking import SegmentationModel

        files = find_images(given.images)
        model = _load(given)
    if isinstance(model, SegmentationModel):
        _mark(model, files, given)
        return
    if given.output:
        raise InputError(f"{given.model} classifies, it marks no pixels; leave `output` out, or write a `sheet`")
    found = model.predict_files(files, skip_broken=given.skip_broken, unknown=given.unknown, bar=progress.shown)
    table = found.table()
    _write_table(table, found.broken, given)
    if given.sheet:
        _write_sheet(found, given.sheet)
    rows = [
        (row[0], row[1], "" if math.isnan(row[2]) else f"{100 * row[2]:.1f}", row[3], f"{100 * row[4]:.1f}")
        for row in table.head(SHOWN).itertuples(index=False)
    ]
    lines = [text_table(("file", "class", "%", "runner-up", "%"), rows, indent="")]
    lines += _summary(found, [given.csv, given.sheet])
    if model.together:
        lines.append(
            "images of one call are normalised together (transductive): answers depend on what is asked with them"
        )
    document = {"classes": found.class_names, "answers": _records(found), "metrics": _accuracy(found)}
    output.show("\n".join(lines), _document(given, found.broken, found.seconds) | document)


def _document(given: argparse.Namespace, broken: list[tuple[Path, str]], seconds: float) -> dict[str, object]:
    """What answers of every kind have: the model, what was skipped, what was written."""
    skipped = [{"file": file, "reason": reason} for file, reason in broken]
    written = {"csv": given.csv, "sheet": given.sheet, "output": given.output}
    return {"model": given.model, "seconds": seconds, "skipped": skipped, **written}


def _load(given: argparse.Namespace) -> "LoadedModel | SegmentationModel":
    """Load the model, adapted to the support where one is given."""
    if given.support:
        from arelu_meta.kinds.few_shot.supported import load_with_support

        return load_with_support(given.model, given.support)
    from arelu_meta.store.predicting import load_model

    return load_model(given.model)


def _mark(model: "SegmentationModel", files: list[Path], given: argparse.Namespace) -> None:
    """Mark pixels, write masks and overlays, and say how much of each image is marked."""
    if given.sheet:
        raise InputError(f"{given.model} marks pixels, it names no classes; leave `sheet` out and give `output`")
    if given.unknown:
        raise InputError(f"{given.model} marks pixels, it names no classes; leave `unknown` out")
    if given.output:
        _check_output(given.output, files)
    if model.note:
        progress.say(f"note: {model.note}")
    found = model.mark_files(files, skip_broken=given.skip_broken, bar=progress.shown)
    table = found.table()
    if given.output:
        from arelu_meta.pictures.mask_overlay import write_masks

        table["mask"], table["overlay"] = write_masks(found.files, found.mask, given.output)
    _write_table(table, found.broken, given)
    rows = [(row[0], f"{100 * row[1]:.2f}") for row in table.head(SHOWN).itertuples(index=False)]
    lines = [text_table(("file", "foreground %"), rows, indent="")]
    lines += _counts(found.files, found.broken, found.seconds)
    lines.append(f"wrote masks and overlays into {given.output}" if given.output else "--output DIR writes the masks")
    lines += [f"wrote {given.csv}"] if given.csv else []
    document = _document(given, found.broken, found.seconds) | {"answers": table.to_dict("records")}
    output.show("\n".join(lines), document)


def _parser() -> argparse.ArgumentParser:
    parser = command_line.Parser(
        prog="python -m arelu_meta.predict",
        description="Answer image files with the network of a run: adapt, finetune, transfer, classify, maml, segment.",
    )
    parser.add_argument("model", metavar="RUN", help="MLflow run id, model URI (runs:/..., models:/...), or folder")
    parser.add_argument("images", nargs="+", metavar="IMAGES", help="image files, or folders with what is below them")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table: a row per image")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="draw images by answer into a PNG")
    parser.add_argument(
        "--support", type=Path, metavar="FOLDER", help="few-shot runs: labelled images to adapt to, a folder per class"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="segment runs: write a mask and an overlay per image, as PNG"
    )
    parser.add_argument(
        "--unknown",
        type=float,
        default=0.0,
        metavar="RATE",
        help="adapt runs: answer `unknown` to images unlike the support, which as many of known classes are (0.05)",
    )
    parser.add_argument("--skip-broken", action="store_true", help="leave out files that cannot be read, and name them")
    return parser


def _check_output(output: Path, files: list[Path]) -> None:
    """Refuse a folder that cannot be written, or whose masks would be taken for images the next time."""
    if any(output.resolve() in (file.resolve().parent, *file.resolve().parent.parents) for file in files):
        raise InputError(f"`output` {output} is where the images are; choose another folder")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {output}: {error.strerror}; choose another folder") from error


def _write_table(table: "DataFrame", broken: list[tuple[Path, str]], given: argparse.Namespace) -> None:
    """Name the files that were skipped, and write the CSV that was asked for."""
    for file, reason in broken:
        progress.say(f"skipped {file}: {reason}")
    if given.csv:
        with _writing(given.csv):
            table.to_csv(given.csv, index=False)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say in one line that a file cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another") from error


def _records(found: "Predictions") -> list[dict[str, object]]:
    """The rows of the table, with the probability of each class."""
    rows = found.table().to_dict("records")
    for row, shares in zip(rows, found.probabilities.tolist(), strict=True):
        row["probabilities"] = dict(zip(map(str, found.class_names), shares, strict=True))
    return rows


def _write_sheet(found: "Predictions", path: Path) -> None:
    """Draw the answers."""
    from PIL import ImageOps

    from arelu_meta.data.files.image_files import open_image
    from arelu_meta.pictures.answer_sheet import Tile, answer_sheet

    truths = found.known_classes() or [""] * len(found.files)
    tiles = []
    for file, row, truth in zip(found.files, found.table().itertuples(index=False), truths, strict=True):
        with open_image(file, str(file)) as opened:
            image = ImageOps.exif_transpose(opened)
            image.thumbnail((256, 256))  # 10,000 photographs at full size would not fit into memory
            share = None if math.isnan(row[2]) else float(row[2])  # of what is unknown
            tiles.append(Tile(image.convert("RGB"), str(row[1]), share, truth))
    sheet = answer_sheet(tiles)
    with _writing(path):
        sheet.save(path, format="PNG")


def _accuracy(found: "Predictions") -> dict[str, "Estimate"]:
    """Share of the images that lie in a folder of the class they were answered; empty where that is not known."""
    from arelu_meta.analysis.estimates import proportion_interval

    truths, count = found.known_classes(), len(found.files)
    if not truths:
        return {}
    right = sum(truth == answer for truth, answer in zip(truths, found.table()["class"], strict=True))
    return {"accuracy": proportion_interval(right / count, count)}


def _summary(found: "Predictions", written: list[Path | None]) -> list[str]:
    """What was not shown, how many were right where that is known, how fast it was, and what was written."""
    count, lines = len(found.files), list[str]()
    for share in _accuracy(found).values():
        interval = f"95 % interval {100 * share.low:.1f} to {100 * share.high:.1f}"
        right = f"{round(share.mean * count)} of {count} are in a folder of that name"
        lines.append(f"{right}: {100 * share.mean:.2f} %, {interval}")
    if found.typicality is not None:
        far = int((found.typicality <= found.rate).sum())
        lines.append(f"{far} of {count} are unknown: less usual than {100 * (1 - found.rate):g} % of the support")
    lines = _counts(found.files, found.broken, found.seconds, lines)
    return [*lines, *(f"wrote {path}" for path in written if path)]


def _counts(
    files: list[Path], broken: list[tuple[Path, str]], seconds: float, between: Sequence[str] = ()
) -> list[str]:
    """How many files are not in the table, how many were skipped, and how fast it was."""
    count, lines = len(files), list[str]()
    if count > SHOWN:
        lines.append(f"... and {count - SHOWN} more; --csv FILE writes all")
    lines += between
    if broken:
        lines.append(f"{len(broken)} of {count + len(broken)} files were skipped")
    return [*lines, f"{count} images in {seconds:.1f} s, {count / max(seconds, 1e-9):.1f} per second"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


if __name__ == "__main__":
    sys.exit(main())
