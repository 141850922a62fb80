"""What kind of machine this is, and which processes of it are alive."""

import os
import platform
import socket
from contextlib import suppress
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """The processor's model, as far as the system tells: kernels, and with them the last digits, depend on it."""
    if CPUINFO.exists():
        for line in CPUINFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(": ")[2]
    return platform.processor() or platform.machine()


def process_name(pid: int | None = None) -> str:
    """Name a process so that no later one has the same name: `HOST:PID:START`; START is empty where it is not known.

    Args:
        pid: number of a process of this machine; None: this one
    """
    pid = os.getpid() if pid is None else pid
    start = ""
    with suppress(OSError):  # no such process, or no /proc
        # The name of the program, in brackets, may hold anything; field 22 is the start, in ticks since the machine's.
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    return f"{socket.gethostname()}:{pid}:{start}"


def has_ended(name: str) -> bool:
    """Tell whether a process named by `process_name` is gone; where that is unknown (another host, Windows), it is not.

    Windows would take the question, signal 0, for Ctrl-C, and interrupt the process that is asked after.

    >>> has_ended(process_name()), has_ended(process_name().replace(socket.gethostname(), "elsewhere"))
    (False, False)
    """
    host, _, number = name.partition(":")
    pid = number.partition(":")[0]
    if host != socket.gethostname() or not pid.isdecimal() or os.name == "nt":
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is there, and another user's
        pass
    return process_name(int(pid)) != name
