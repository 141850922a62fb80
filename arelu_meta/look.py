"""Look into trained runs: Grad-CAM, and feature maps before and after an activation.

python -m arelu_meta.look RUN --layer block2
python -m arelu_meta.look RELU_RUN ARELU_RUN --layer stages.1 --maps-layer stem.2
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from arelu_meta.console import command_line, output
from arelu_meta.errors import require
from arelu_meta.store.sources import check_given


def command(argv: Sequence[str] | None = None) -> None:
    """Draw, and say where the pictures are."""
    parser = command_line.Parser(
        prog="python -m arelu_meta.look",
        description="Draw Grad-CAM and feature maps of trained networks, as files and as artifacts of their runs.",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="MLflow run id, model URI (runs:/..., models:/...), or run folder"
    )
    parser.add_argument(
        "--layer", default="", help="layer for Grad-CAM, as in network.named_modules(); without it, they are named"
    )
    parser.add_argument("--maps-layer", default="", metavar="LAYER", help="activation to draw before and after")
    parser.add_argument("--images", type=int, default=4, help="test images to explain [4]")
    parser.add_argument("--data-root", help="folder of the published data sets")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="folder of the files [pictures]")
    parser.add_argument(
        "--trust", default="", metavar="PACKAGE,...", help="packages whose code the settings of a run may name"
    )
    given = parser.parse_args(argv)
    require("captum", what="Grad-CAM", extra="explain")
    for run in given.runs:
        check_given(run)

    from arelu_meta.kinds.look import look_into

    drawn = look_into(
        given.runs,
        layer=given.layer,
        maps_layer=given.maps_layer,
        images=given.images,
        root=given.data_root,
        out=given.out,
        trust=given.trust.split(","),
    )
    lines = [*map(str, drawn.files), f"and among the artifacts of {', '.join(drawn.run_ids)}"]
    output.show("\n".join(lines), {"files": drawn.files, "run_ids": drawn.run_ids})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


if __name__ == "__main__":
    sys.exit(main())
