"""A mirror on this machine that misbehaves as told."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Mirror:
    """Serve one content under every name. `plan` says how to answer each request in turn; the last goes on for ever.

    Answers: `whole` (with Range), `no-range` (always from the start), `cut` (stops half-way), `stall` (half, then
    silence), `corrupt` (other bytes), a number (that status).
    """

    def __init__(self, content: bytes, plan: tuple[str | int, ...] = ("whole",)) -> None:
        self.content, self.plan = content, list(plan)
        self.requests: list[tuple[str, str | None]] = []  # path, Range
        self.url = ""
        self.released = threading.Event()  # ends a stall
        self.delay = 0.0

    def next_answer(self) -> str | int:
        return self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]


@contextmanager
def serve(mirror: Mirror) -> Iterator[Mirror]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer, asked = mirror.next_answer(), self.headers.get("Range")
            mirror.requests.append((self.path, asked))
            if isinstance(answer, int):
                self.send_error(answer)
                return
            start = int(re.fullmatch(r"bytes=(\d+)-", asked).group(1)) if asked and answer != "no-range" else 0
            if start and start >= len(mirror.content):
                self.send_error(416)
                return
            body = mirror.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            time.sleep(mirror.delay)
            if answer == "corrupt":
                body = body[:-1] + bytes([body[-1] ^ 1])
            self.wfile.write(body[: len(body) // 2] if answer in ("cut", "stall") else body)
            if answer == "stall":
                self.wfile.flush()
                mirror.released.wait(20)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    mirror.url = f"http://127.0.0.1:{server.server_address[1]}/files"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield mirror
    finally:
        mirror.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
