"""Look at image sets before using them.

python -m arelu_meta.data list
python -m arelu_meta.data show glyphs --out glyphs.png
python -m arelu_meta.data cache --remove --unused-days 30
python -m arelu_meta.data show my_photos/ --image-size 64 --resize crop --skip-broken
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from arelu_meta import data
from arelu_meta.console import command_line, output, progress
from arelu_meta.console.tables import text_table
from arelu_meta.errors import InputError
from arelu_meta.reading import following_links, skipping_broken
from arelu_meta.runtime.hardware import bounding_images

IMAGE_MEMORY = "memory for images; a larger folder is decoded once to the cache folder [a quarter of the machine's]"
RESIZE = "scale the shorter side and cut the centre out, squash both sides, or crop the centre without scaling [scale]"
SIDE = 84  # pixels that files of different sizes are shown with


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
    show.add_argument("--image-size", type=int, default=0, metavar="SIZE", help="side the images are brought to")
    show.add_argument("--resize", choices=("crop", "scale", "squash"), default="scale", help=RESIZE)
    show.add_argument("--skip-broken", action="store_true", help="leave out files that cannot be read, and name them")
    show.add_argument("--follow-links", action="store_true", help="follow links that lead out of a folder of images")
    cache = commands.add_parser("cache", help="list the files of decoded images in the cache folder, or remove them")
    cache.add_argument("--remove", action="store_true", help="remove them; runs that read one go on with it")
    days = "with --remove: only what was not used for so many days"
    cache.add_argument("--unused-days", type=float, default=0.0, metavar="DAYS", help=days)
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
    elif flags.command == "cache":
        _cache(remove=flags.remove, unused_days=flags.unused_days)
    else:
        _show(flags)


def _show(flags: argparse.Namespace) -> None:
    """Read a set as commands that train would, describe it, and draw its contact sheet."""
    if flags.image_size < 0:
        raise InputError(f"--image-size {flags.image_size} must be at least 1")
    if not 0 <= flags.image_memory < 1 << 40:
        raise InputError(f"`image_memory` is {flags.image_memory}; give a number of MiB, or 0")
    is_folder = data.is_path(flags.name) and Path(flags.name).expanduser().is_dir()
    options = {"mixed_size": flags.image_size or SIDE, "resize": flags.resize} if is_folder else {}
    from arelu_meta.data.describe import describe, facts, write_contact_sheet
    from arelu_meta.data.files.image_cache import keep_decoded
    from arelu_meta.data.inputs import fit_images

    memory = bounding_images(flags.image_memory)
    with skipping_broken(flags.skip_broken), following_links(flags.follow_links), memory:
        images = data.load(flags.name, root=flags.data_root, **options)
        images = fit_images(images, image_size=flags.image_size, resize=flags.resize)
        images = keep_decoded({"all": images}, progress.shown)["all"]
    sheet = None
    if not images.is_vectors:
        sheet = flags.out or Path(f"{Path(flags.name).stem}.png")
        write_contact_sheet(images, sheet)
    text = describe(images) + (f"\nsheet: {sheet}" if sheet else "")
    output.show(text, facts(images) | {"sheet": sheet})


def _cache(*, remove: bool, unused_days: float) -> None:
    """Remove files of decoded images, or list them, and print what was done."""
    from arelu_meta.data.files.image_cache import cached_files, remove_cached

    if not unused_days >= 0:
        raise InputError(f"`unused_days` is {unused_days:g}; give 0 or more")
    if unused_days and not remove:
        raise InputError("`unused_days` says what is removed; add `remove`")
    files = remove_cached(unused_days=unused_days) if remove else cached_files()
    rows = [f"{file.size / 1e6:>10,.1f} MB  used {date.fromtimestamp(file.used)}  {file.path}\n" for file in files]
    total = f"{sum(file.size for file in files) / 1e6:>10,.1f} MB  {'removed' if remove else 'in'} {len(files)} files\n"
    listed = [
        {"path": file.path, "bytes": file.size, "used": date.fromtimestamp(file.used).isoformat()} for file in files
    ]
    output.show("".join([*rows, total]), {"removed": remove, "files": listed})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return command_line.main(command, arguments)


if __name__ == "__main__":
    sys.exit(main())
