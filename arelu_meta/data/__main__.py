"""Look at image sets before using them.

python -m arelu_meta.data list
python -m arelu_meta.data show glyphs --out glyphs.png
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from arelu_meta import data
from arelu_meta.console import command_line


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    main = command_line.Parser(prog="python -m arelu_meta.data", description="Look at image sets before using them.")
    commands = main.add_subparsers(dest="command", required=True, metavar="{list,show}")
    commands.add_parser("list", help="list the sets known by name")
    show = commands.add_parser("show", help="print what is in a set and draw a contact sheet of it")
    show.add_argument("name", metavar="NAME|PATH", help="a set's name, or the path of your own")
    show.add_argument("--out", type=Path, metavar="PNG", help="where the contact sheet goes; NAME.png unless given")
    show.add_argument("--data-root", type=Path, metavar="DIR", help="folder of the sets that do not come bundled")
    return main


def command(arguments: Sequence[str] | None = None) -> None:
    """List the registered sets, or describe one and draw its contact sheet."""
    flags = parser().parse_args(arguments)
    if flags.command == "list":
        widest = max(map(len, data.names()))
        for entry in data.entries():
            kind = entry.origin or ("bundled " if entry.bundled else "download")
            sys.stdout.write(f"{entry.name:<{widest}}  {kind}  {entry.summary}\n")
        return
    images = data.load(flags.name, root=flags.data_root)
    from arelu_meta.data.describe import describe, write_contact_sheet

    sheet = ""
    if not images.is_vectors:
        out = flags.out or Path(f"{Path(flags.name).stem}.png")
        write_contact_sheet(images, out)
        sheet = f"sheet: {out}\n"
    sys.stdout.write(f"{describe(images)}\n{sheet}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return command_line.main(command, arguments)


if __name__ == "__main__":
    sys.exit(main())
