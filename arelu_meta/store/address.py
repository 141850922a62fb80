"""Addresses of servers: shown without passwords, and checked before anyone waits for an answer."""

import re
import socket
import time
from urllib.parse import urlsplit
from urllib.request import getproxies

PORTS = {"http": 80, "https": 443}
RETRY_SECONDS = 20.0  # seconds; a server that is being restarted answers again by then
CONNECT_TIMEOUT = 5.0


def without_password(text: str) -> str:
    """Take passwords out of the addresses in a text.

    >>> without_password("no answer from postgresql://me:secret@host/mlflow")
    'no answer from postgresql://me:***@host/mlflow'
    """
    return re.sub(r"(://[^:/@\s]*):[^@\s]+@", r"\1:***@", text)


def check_reachable(address: str) -> None:
    """Raise ConnectionError where no server answers at an http address; one behind a proxy cannot be checked."""
    parts = urlsplit(address)
    if parts.scheme not in PORTS or parts.hostname is None or parts.scheme in getproxies():
        return
    port, end = parts.port or PORTS[parts.scheme], time.monotonic() + RETRY_SECONDS
    while True:
        try:
            socket.create_connection((parts.hostname, port), timeout=CONNECT_TIMEOUT).close()
        except OSError as error:
            if time.monotonic() > end:
                raise ConnectionError(
                    f"no server answers at {parts.hostname}:{port} ({error.strerror or error})"
                ) from error
            time.sleep(1)
        else:
            return
