"""Answer new images with a trained classifier.

python -m arelu_meta.predict RUN new_photos/
python -m arelu_meta.predict models:/birds/1 a.jpg b.jpg --csv answers.csv --sheet answers.png
python -m arelu_meta.predict runs/adapt-... new_photos/ --skip-broken --json answers.json
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arelu_meta.console import command_line
from arelu_meta.console.tables import text_table
from arelu_meta.errors import InputError

if TYPE_CHECKING:
    from arelu_meta.store.predicting import Predictions

SHOWN = 40  # rows of the table; a file has all


def command(argv: Sequence[str] | None = None) -> None:
    """Load, answer, write and say."""
    given = _parser().parse_args(argv)
    for path in filter(None, (given.csv, given.json, given.sheet)):
        if not path.parent.is_dir() or path.is_dir():
            raise InputError(f"cannot write {path}: its folder is not there, or it is a folder; choose another")
    from arelu_meta.store.predicting import find_images, load_model

    files = find_images(given.images)
    found = load_model(given.model).predict_files(files, skip_broken=given.skip_broken)
    for file, reason in found.broken:
        sys.stderr.write(f"skipped {file}: {reason}\n")
    table = found.table()
    if given.csv:
        table.to_csv(given.csv, index=False)
    if given.json:
        given.json.write_text(json.dumps(_records(found), indent=1) + "\n")
    if given.sheet:
        _write_sheet(found, given.sheet)
    rows = [
        (row[0], row[1], f"{100 * row[2]:.1f}", row[3], f"{100 * row[4]:.1f}")
        for row in table.head(SHOWN).itertuples(index=False)
    ]
    sys.stdout.write(text_table(("file", "class", "%", "runner-up", "%"), rows, indent="") + "\n")
    sys.stdout.write("\n".join(_summary(found, [given.csv, given.json, given.sheet])) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = command_line.Parser(
        prog="python -m arelu_meta.predict",
        description="Answer image files with the network of an adapt, finetune, transfer or classify run.",
    )
    parser.add_argument("model", metavar="RUN", help="MLflow run id, model URI (runs:/..., models:/...), or folder")
    parser.add_argument("images", nargs="+", metavar="IMAGES", help="image files, or folders with what is below them")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table: a row per image")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the answers with the probability of each class"
    )
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="draw images by answer into a PNG")
    parser.add_argument("--skip-broken", action="store_true", help="leave out files that cannot be read, and name them")
    return parser


def _records(found: "Predictions") -> list[dict[str, object]]:
    """The rows of the table, with the probability of each class."""
    rows = found.table().to_dict("records")
    for row, shares in zip(rows, found.probabilities.tolist(), strict=True):
        row["probabilities"] = dict(zip(map(str, found.class_names), shares, strict=True))
    return rows


def _write_sheet(found: "Predictions", path: Path) -> None:
    """Draw the answers."""
    from PIL import Image

    from arelu_meta.pictures.answer_sheet import Tile, answer_sheet

    truths = found.known_classes() or [""] * len(found.files)
    tiles = []
    for row, truth in zip(found.table().itertuples(index=False), truths, strict=True):
        with Image.open(row[0]) as image:
            image.thumbnail((256, 256))  # 10,000 photographs at full size would not fit into memory
            tiles.append(Tile(image.convert("RGB"), str(row[1]), float(row[2]), truth))
    answer_sheet(tiles).save(path, format="PNG")


def _summary(found: "Predictions", written: list[Path | None]) -> list[str]:
    """What was not shown, how many were right where that is known, how fast it was, and what was written."""
    from arelu_meta.analysis.estimates import proportion_interval

    count, lines = len(found.files), list[str]()
    if count > SHOWN:
        lines.append(f"... and {count - SHOWN} more; --csv FILE writes all")
    truths = found.known_classes()
    if truths:
        right = sum(truth == answer for truth, answer in zip(truths, found.table()["class"], strict=True))
        share = proportion_interval(right / count, count)
        interval = f"95 % interval {100 * share.low:.1f} to {100 * share.high:.1f}"
        lines.append(f"{right} of {count} are in a folder of that name: {100 * right / count:.2f} %, {interval}")
    if found.broken:
        lines.append(f"{len(found.broken)} of {count + len(found.broken)} files were skipped")
    lines.append(f"{count} images in {found.seconds:.1f} s, {count / max(found.seconds, 1e-9):.1f} per second")
    return [*lines, *(f"wrote {path}" for path in written if path)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


if __name__ == "__main__":
    sys.exit(main())
