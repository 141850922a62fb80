"""Take a trained network out of the store.

python -m arelu_meta.export RUN_ID --to safetensors
python -m arelu_meta.export RUN_ID --to onnx --output exported/
python -m arelu_meta.export RUN_ID --to hub            # a folder with a model card, to be uploaded by you
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from arelu_meta.console import command_line, output
from arelu_meta.errors import require
from arelu_meta.store.sources import check_given

KINDS = ("safetensors", "torch_export", "onnx", "hub")


def command(argv: Sequence[str] | None = None) -> None:
    """Fetch, write, check and say where it is."""
    parser = command_line.Parser(
        prog="python -m arelu_meta.export", description="Write the network of a classify, finetune or segment run."
    )
    parser.add_argument("run", metavar="RUN", help="MLflow run id, model URI (runs:/..., models:/...), or folder")
    parser.add_argument("--to", choices=KINDS, default="safetensors", help="format [safetensors]")
    parser.add_argument("--output", metavar="DIR", help="folder to write into [export-RUN]")
    given = parser.parse_args(argv)
    if given.to == "onnx":
        require("onnx", "onnxscript", what="ONNX", extra="onnx")
    check_given(given.run)
    from arelu_meta.store.formats import write
    from arelu_meta.store.models import open_model

    folder = Path(given.output or f"export-{given.run.replace(':', '').strip('/').replace('/', '-')}")
    lines = write(open_model(given.run), given.to, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    output.show(
        "\n".join(lines), {"run": given.run, "format": given.to, "folder": folder, "files": files, "said": lines}
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


if __name__ == "__main__":
    sys.exit(main())
