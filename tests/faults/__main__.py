"""Run every long trial of this folder, then write docs/reliability.md from what they found.

python -m tests.faults                      # hours
python -m tests.faults --only kills,servers
python -m tests.faults --page               # the page alone, from the records that are kept

A trial is a module here that has a `main` and writes records; it runs in a process of its own with its full counts.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.faults.page import read_records, write_page
from tests.faults.record import PAGE


def trials(folder: Path = Path(__file__).parent) -> list[str]:
    """Find the trials: modules that write records when they are run."""
    wanted = ("write_record(", "def main(", '__name__ == "__main__"')
    sources = {path.stem: path.read_text() for path in sorted(folder.glob("*.py")) if path.stem != "__main__"}
    return [name for name, source in sources.items() if all(text in source for text in wanted)]


def main() -> int:
    """Run the trials and write the page; 1 where one lost something, or did not end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(trials()), help="trials, separated by commas")
    parser.add_argument("--page", action="store_true", help="run none, write the page from the records that are there")
    given = parser.parse_args()
    failed = []
    for name in [] if given.page else given.only.split(","):
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        if subprocess.run([sys.executable, "-m", f"tests.faults.{name}"], check=False).returncode:
            failed.append(name)
    records = read_records()
    PAGE.write_text(write_page(records))
    sys.stdout.write(f"{PAGE.name}: {len(records)} records; not kept or not ended: {', '.join(failed) or 'none'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
