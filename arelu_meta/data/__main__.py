"""Look at image sets before using them.

python -m arelu_meta.data list
python -m arelu_meta.data show glyphs --out glyphs.png
python -m arelu_meta.data cache --remove --unused-days 30
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from arelu_meta import data
from arelu_meta.console import command_line, progress
from arelu_meta.errors import InputError
from arelu_meta.runtime.hardware import bounding_images

IMAGE_MEMORY = "memory for images; a larger folder is decoded once to the cache folder [a quarter of the machine's]"


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    main = command_line.Parser(prog="python -m arelu_meta.data", description="Look at image sets before using them.")
    commands = main.add_subparsers(dest="command", required=True, metavar="{list,show,cache}")
    commands.add_parser("list", help="list the sets known by name")
    show = commands.add_parser("show", help="print what is in a set and draw a contact sheet of it")
    show.add_argument("name", metavar="NAME|PATH", help="a set's name, or the path of your own")
    show.add_argument("--out", type=Path, metavar="PNG", help="where the contact sheet goes; NAME.png unless given")
    show.add_argument("--data-root", type=Path, metavar="DIR", help="folder of the sets that do not come bundled")
    show.add_argument("--image-memory", type=int, default=0, metavar="MIB", help=IMAGE_MEMORY)
    cache = commands.add_parser("cache", help="list the files of decoded images in the cache folder, or remove them")
    cache.add_argument("--remove", action="store_true", help="remove them; runs that read one go on with it")
    days = "with --remove: only what was not used for so many days"
    cache.add_argument("--unused-days", type=float, default=0.0, metavar="DAYS", help=days)
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
    if flags.command == "cache":
        sys.stdout.write(_cache(remove=flags.remove, unused_days=flags.unused_days))
        return
    if not 0 <= flags.image_memory < 1 << 40:
        raise InputError(f"`image_memory` is {flags.image_memory}; give a number of MiB, or 0")
    from arelu_meta.data.describe import describe, write_contact_sheet
    from arelu_meta.data.files.image_cache import keep_decoded

    with bounding_images(flags.image_memory):
        images = data.load(flags.name, root=flags.data_root)
        images = keep_decoded({"all": images}, progress.shown)["all"]
    sheet = ""
    if not images.is_vectors:
        out = flags.out or Path(f"{Path(flags.name).stem}.png")
        write_contact_sheet(images, out)
        sheet = f"sheet: {out}\n"
    sys.stdout.write(f"{describe(images)}\n{sheet}")


def _cache(*, remove: bool, unused_days: float) -> str:
    """Remove files of decoded images, or list them; gives what was done."""
    from arelu_meta.data.files.image_cache import cached_files, remove_cached

    if not unused_days >= 0:
        raise InputError(f"`unused_days` is {unused_days:g}; give 0 or more")
    if unused_days and not remove:
        raise InputError("`unused_days` says what is removed; add `remove`")
    files = remove_cached(unused_days=unused_days) if remove else cached_files()
    rows = [f"{file.size / 1e6:>10,.1f} MB  used {date.fromtimestamp(file.used)}  {file.path}\n" for file in files]
    total = f"{sum(file.size for file in files) / 1e6:>10,.1f} MB  {'removed' if remove else 'in'} {len(files)} files\n"
    return "".join([*rows, total])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return command_line.main(command, arguments)


if __name__ == "__main__":
    sys.exit(main())
