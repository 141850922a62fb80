"""Which torchvision and timm networks activation surgery takes.

python -m arelu_meta.survey
python -m arelu_meta.survey resnet18 timm/vgg11
"""

import sys
from collections.abc import Sequence

from arelu_meta.console import command_line, output


def command(argv: Sequence[str] | None = None) -> None:
    """Survey networks and print the table of docs/surgery.md."""
    parser = command_line.Parser(prog="python -m arelu_meta.survey", description="Which networks surgery takes.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="networks to try; none: all of the survey")
    chosen = parser.parse_args(argv).networks
    from arelu_meta.surgery import survey

    networks = list(survey.survey(chosen or survey.surveyed_names()))
    output.show(survey.survey_table(networks), {"networks": [network.as_dict() for network in networks]})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


if __name__ == "__main__":
    sys.exit(main())
