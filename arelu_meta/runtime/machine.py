"""What kind of machine this is."""

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """The processor's model, as far as the system tells: kernels, and with them the last digits, depend on it."""
    if CPUINFO.exists():
        for line in CPUINFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(": ")[2]
    return platform.processor() or platform.machine()
