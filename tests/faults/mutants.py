"""Damage files at random and read them: each must be read, or refused with one line, soon and within memory.

python -m tests.faults.mutants --count 1000                     # all readers, in child processes; a table
python -m tests.faults.mutants --only npz,checkpoint --seed 7

Mutants are numbered: reader, seed and number make the same one again. Archives are also damaged from inside, with
checksums that fit. Readers that are done are not examined again (runs/faults/mutants.jsonl), so two processes may share
them out by `--only`.
"""

import io
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from arelu_meta.errors import InputError, RunError
from tests.faults.record import Log, Record, Row, history, trial_parser, write_record
from tests.faults.specimens import SPECIMENS, Specimen

SECONDS, GROWTH_MIB, ROOM = 10, 1024, 3 << 30  # allowed time and memory of one mutant; address space above the start
TOKENS = b'[] {} null true -1 0 1e999 99999999999999999999 "" "x" "../../x" "os:system" [[[[[[ NaN \\u0000 \xff'.split()
EDGES = [bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\0\0\0", b"\0\0\0\x80", b"\xff" * 8]
OUTCOMES = ("clean", "accepted", "traceback", "several lines", "hang", "died", "memory", "code", "outside")
PROGRAMS = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork")  # audit events that start one
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def mutate(content: bytes, draw: random.Random) -> bytes:
    """Damage bytes in one to three ways."""
    if zipfile.is_zipfile(io.BytesIO(content)) and draw.random() < 0.6:
        return _mutated_member(content, draw)
    data = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        place, length = draw.randrange(len(data) + 1), draw.choice((1, 4, 64, 4096))
        kind = draw.randrange(8)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << draw.randrange(8)
        elif kind == 1 and place < len(data):
            data[place] = draw.randrange(256)
        elif kind == 2:
            del data[place : place + (length if draw.random() < 0.5 else len(data))]
        elif kind == 3:
            data[place : place + length] = bytes(length)
        elif kind == 4:
            edge = draw.choice(EDGES)
            data[place : place + len(edge)] = edge
        elif kind == 5:
            data[place:place] = data[place : place + length]
        elif kind == 6:
            words = list(re.finditer(rb'"[^"\n]*"|[\w.+-]+', bytes(data[:100_000])))
            if words:
                word = draw.choice(words)
                data[word.start() : word.end()] = draw.choice(TOKENS)
        else:
            data[place:place] = draw.randbytes(draw.randint(1, 32))
    return bytes(data)


def _mutated_member(content: bytes, draw: random.Random) -> bytes:
    """Damage one member of a zip file and write the archive anew, so that its checksums fit."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        chosen = draw.choice(names)
        for name in names:
            inner = old.read(name)
            inner = mutate(inner, draw) if name == chosen else inner
            new.writestr(name, inner, compress_type=old.getinfo(name).compress_type)
    return out.getvalue()


def mutant(specimen: Specimen, folder: Path, seed: int, number: int) -> None:
    """Put the specimen into a folder, and damage one of its files."""
    draw = random.Random(f"{specimen.name}/{seed}/{number}")  # noqa: S311
    chosen = draw.choice(specimen.damaged)
    for name, content in specimen.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mutate(content, draw) if name == chosen else content)


def outcome(specimen: Specimen, folder: Path) -> tuple[str, str]:
    """Read, and say what came of it: the outcome, and where it is bad its place."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            specimen.read(folder)
    except (InputError, RunError) as error:
        return ("several lines", str(error)[:200]) if "\n" in str(error) else ("clean", "")
    except Exception as error:
        places = [f for f in traceback.extract_tb(error.__traceback__) if "arelu_meta/" in f.filename]
        where = f"{places[-1].filename.rpartition('arelu_meta/')[2]}:{places[-1].lineno}" if places else "?"
        return "traceback", f"{where} {type(error).__name__}: {str(error)[:100]}"
    return "accepted", ""


def _child(specimen: Specimen, numbers: range, seed: int, pipe: int) -> None:
    """Read mutants one after another, and tell of each; what starts programs or writes elsewhere is told too."""
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + ROOM, resource.RLIM_INFINITY))
    ran: list[str] = []
    written: list[str] = []

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in PROGRAMS:
            ran.append(f"{event} {arguments!r:.80}")
        elif event == "open" and isinstance(arguments[0], str | bytes) and (arguments[2] or 0) & WRITING:
            written.append(os.path.realpath(os.fsdecode(arguments[0])))

    sys.addaudithook(audit)
    place, tempfile.tempdir = tempfile.gettempdir(), tempfile.mkdtemp()  # what readers unpack is apart from the mutant
    for number in numbers:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with tempfile.TemporaryDirectory(dir=place) as folder:
            mutant(specimen, Path(folder), seed, number)
            ran.clear()
            written.clear()
            found, where = outcome(specimen, Path(folder))
            inside = (f"{os.path.realpath(folder)}/", f"{os.path.realpath(tempfile.tempdir)}/", os.devnull)
            outside = [path for path in written if not path.startswith(inside)]
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
        if grown > GROWTH_MIB:
            found, where = "memory", f"{grown} MiB"
        if outside:
            found, where = "outside", outside[0]
        if ran:
            found, where = "code", ran[0]
        os.write(pipe, f"{number}\t{found}\t{grown}\t{where}".replace("\n", " ").encode() + b"\n")
    shutil.rmtree(tempfile.tempdir, ignore_errors=True)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def examine(specimen: Specimen, count: int, seed: int) -> tuple[Counter[str], list[str], int]:
    """Read so many mutants in child processes.

    Returns:
        How often each outcome was seen, what was bad, and the most MiB that one took.
    """
    counts: Counter[str] = Counter()
    bad: list[str] = []
    most, number = 0, 0
    while number < count:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 1)
            os.dup2(devnull, 2)
            try:
                _child(specimen, range(number, count), seed, writing)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as stream:
            number, most, ended = _listen(stream, specimen, number, most, counts, bad)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if number < count:
            counts[ended] += 1
            bad.append(f"{specimen.name} {number}: {ended}")
            number += 1
    return counts, bad, most


def _listen(
    stream: io.RawIOBase, specimen: Specimen, number: int, most: int, counts: Counter[str], bad: list[str]
) -> tuple[int, int, str]:
    """Take what a child tells until it ends or is silent for too long."""
    left = b""
    while True:
        if not select.select([stream], [], [], SECONDS)[0]:
            return number, most, "hang"
        chunk = stream.read(65536)
        if not chunk:
            return number, most, "died"
        *lines, left = (left + chunk).split(b"\n")
        for line in lines:
            _, found, grown, where = line.decode(errors="replace").split("\t", 3)
            counts[found] += 1
            most = max(most, int(grown))
            if found not in ("clean", "accepted"):
                bad.append(f"{specimen.name} {number}: {found} {where}")
            number += 1


def _record(count: int, rows: list[Row]) -> Record:
    """Put what was found over all readers into a record."""
    found = sum((Counter(row["found"]) for row in rows), Counter[str]())
    commits: Counter[str] = Counter()
    for row in rows:
        commits[row["commit"]] += sum(row["found"].values())
    most = max(row["most"] for row in rows)
    notes = [f"{found['clean']:,} refused, {found['accepted']:,} read, {most} MiB at most"]
    notes += [f"{count:,} of each of {len(rows)} kinds: " + ", ".join(row["reader"] for row in rows), *history(rows)]
    return Record(
        name="mutants",
        promise="A damaged file is read, or refused in one line: no traceback, no hang, no crash, no code run.",
        how="Files of each kind, damaged at random, are read in child processes. Lost: a traceback, several lines, "
        f"{SECONDS} s of silence, a process that died, {GROWTH_MIB} MiB more, a program started, a file "
        "written outside the folder.",
        command=f"python -m tests.faults.mutants --count {count}",
        commits=dict(commits),
        lost=sum(len(row["wrong"]) for row in rows),
        notes="; ".join(notes),
        seed=rows[0]["seed"],
    )


def main() -> int:
    """Examine readers, print a table and all that was bad; 1 where anything was."""
    parser = trial_parser(__doc__)
    parser.add_argument("--count", type=int, default=1000, help="mutants of each reader [1000]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(SPECIMENS), help="readers, separated by commas")
    given = parser.parse_args()
    log = Log("mutants", ("reader", "seed", "count"))
    sys.stdout.write(f"| reader | mutants | {' | '.join(OUTCOMES)} | most MiB | s |\n{'|---' * (len(OUTCOMES) + 4)}|\n")
    wrong: list[str] = []
    for name in given.only.split(","):
        key = {"reader": name, "seed": given.seed, "count": given.count}
        if log.is_done(again=given.again, **key):
            continue
        start = time.monotonic()
        counts, bad, most = examine(SPECIMENS[name](), given.count, given.seed)
        seconds = round(time.monotonic() - start, 1)
        log.add({**key, "found": counts, "most": most, "seconds": seconds, "wrong": bad})
        cells = " | ".join(str(counts[each]) for each in OUTCOMES)
        sys.stdout.write(f"| {name} | {given.count} | {cells} | {most} | {seconds:.0f} |\n")
        sys.stdout.flush()
        wrong += bad
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    write_record(_record(given.count, log.rows(seed=given.seed, count=given.count)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
