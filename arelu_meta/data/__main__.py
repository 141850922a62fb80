"""Look at image sets before using them.

python -m arelu_meta.data list
python -m arelu_meta.data show glyphs --out glyphs.png
python -m arelu_meta.data show my_photos/ --image-size 64 --resize crop --skip-broken
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from arelu_meta import data
from arelu_meta.console import command_line, output
from arelu_meta.console.tables import text_table
from arelu_meta.errors import InputError
from arelu_meta.reading import following_links, skipping_broken

SIDE = 84  # pixels that files of different sizes are shown with


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    main = command_line.Parser(prog="python -m arelu_meta.data", description="Look at image sets before using them.")
    commands = main.add_subparsers(dest="command", required=True, metavar="{list,show}")
    commands.add_parser("list", help="list the sets known by name")
    show = commands.add_parser("show", help="print what is in a set and draw a contact sheet of it")
    show.add_argument("name", metavar="NAME|PATH", help="a set's name, or the path of your own")
    show.add_argument("--out", type=Path, metavar="PNG", help="where the contact sheet goes; NAME.png unless given")
    show.add_argument("--data-root", type=Path, metavar="DIR", help="folder of the sets that do not come bundled")
    show.add_argument("--image-size", type=int, default=0, metavar="SIZE", help="side the images are brought to")
    show.add_argument("--resize", choices=("crop", "scale"), default="scale", help="cut the centre out, or resample")
    show.add_argument("--skip-broken", action="store_true", help="leave out files that cannot be read, and name them")
    show.add_argument("--follow-links", action="store_true", help="follow links that lead out of a folder of images")
    return main


def command(arguments: Sequence[str] | None = None) -> None:
    """List the registered sets, or describe one and draw its contact sheet."""
    flags = parser().parse_args(arguments)
    if flags.command == "list":
        rows = [
            (one.name, one.origin or ("bundled" if one.bundled else "download"), one.summary) for one in data.entries()
        ]
        listed = [dict(zip(("name", "source", "summary"), row, strict=True)) for row in rows]
        output.show(text_table(("", "", ""), rows, indent=""), {"sets": listed})
    else:
        _show(flags)


def _show(flags: argparse.Namespace) -> None:
    """Read a set as commands that train would, describe it, and draw its contact sheet."""
    if flags.image_size < 0:
        raise InputError(f"--image-size {flags.image_size} must be at least 1")
    is_folder = data.is_path(flags.name) and Path(flags.name).expanduser().is_dir()
    options = {"mixed_size": flags.image_size or SIDE} if is_folder else {}
    with skipping_broken(flags.skip_broken), following_links(flags.follow_links):
        images = data.load(flags.name, root=flags.data_root, **options)
    from arelu_meta.data.describe import describe, facts, write_contact_sheet
    from arelu_meta.data.inputs import fit_images

    images = fit_images(images, image_size=flags.image_size, resize=flags.resize)
    sheet = None
    if not images.is_vectors:
        sheet = flags.out or Path(f"{Path(flags.name).stem}.png")
        write_contact_sheet(images, sheet)
    text = describe(images) + (f"\nsheet: {sheet}" if sheet else "")
    output.show(text, facts(images) | {"sheet": sheet})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return command_line.main(command, arguments)


if __name__ == "__main__":
    sys.exit(main())
