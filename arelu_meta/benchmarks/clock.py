"""Time spent inside the methods of a class, whoever calls them."""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class Clock:
    """Seconds and calls; a method that calls another one is counted once."""

    def __init__(self) -> None:
        self.seconds, self.calls, self._depth = 0.0, 0, 0

    @contextmanager
    def watching(self, kind: type, names: Sequence[str]) -> Iterator[None]:
        """Count these methods of the class until the end."""
        originals = {name: getattr(kind, name) for name in names}
        for name, original in originals.items():
            setattr(kind, name, self._timed(original))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(kind, name, original)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            start = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += time.perf_counter() - start
                    self.calls += 1

        return timed
