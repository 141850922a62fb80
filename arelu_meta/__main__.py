"""What there is: commands, tasks, experiments, activations, backbones, data sets. Imports no torch.

python -m arelu_meta
"""

import sys
from collections.abc import Iterable, Sequence

from arelu_meta import activations, backbones, data, learners
from arelu_meta.console import catalog, command_line
from arelu_meta.console.tables import text_table

COMMANDS = {
    "arelu_meta.maml": "meta-train and meta-test one few-shot task",
    "arelu_meta.finetune": "fine-tune any network on a target, or pre-train on a source set first",
    "arelu_meta.lr_view": "fine-tune over decades of learning rates, activation by activation",
    "arelu_meta.export": "take a trained network out of the store: safetensors, torch.export, ONNX",
    "arelu_meta.classify": "train and test a classifier",
    "arelu_meta.segment": "train and test a U-Net on image and mask pairs",
    "arelu_meta.compare": "run or resume every cell of an experiment, then report",
    "arelu_meta.data": "list image sets, show one",
    "arelu_meta.bench": "speed and memory beside the peers",
    "arelu_meta.look": "draw Grad-CAM and feature maps of trained runs",
    "arelu_meta.survey": "tell which torchvision and timm networks activation surgery takes",
}


def command(argv: Sequence[str] | None = None) -> None:
    """Print the lists."""
    command_line.Parser(prog="python -m arelu_meta", description="List what the toolkit has.").parse_args(argv)
    sys.stdout.write("\n\n".join(_sections()) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


def _sections() -> Iterable[str]:
    yield _section("commands", ("command", ""), [(f"python -m {name}", text) for name, text in COMMANDS.items()])
    for kind in ("task", "experiment"):
        found = [(name, str(catalog.read(kind, name).get("summary", ""))) for name in catalog.names(kind)]
        if found:
            yield _section(f"{kind}s", (kind, ""), found)
    yield _section(
        "activations (trainable parameters per layer)",
        ("activation", "group", "parameters", "what it computes", "source"),
        [
            (entry.name, entry.group, str(entry.parameters), entry.summary, entry.source)
            for entry in activations.entries()
        ],
    )
    yield _section(
        "methods",
        ("method", "engines", "what it does", "source"),
        [(entry.name, ", ".join(entry.engines), entry.summary, entry.source) for entry in learners.entries()],
    )
    yield _section("backbones", ("backbone", ""), [(entry.name, entry.summary) for entry in backbones.entries()])
    yield _section(
        "data sets",
        ("data set", "", ""),
        [(entry.name, "bundled" if entry.bundled else "published", entry.summary) for entry in data.entries()],
    )


def _section(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"{title}\n{text_table(header, rows)}"


if __name__ == "__main__":
    sys.exit(main())
