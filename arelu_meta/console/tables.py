"""Tables as plain text. Nothing here imports torch."""

from collections.abc import Iterable, Sequence

from arelu_meta.reading import shown


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, indent: str = "  ") -> str:
    """Align columns by their widest cell; numbers to the right, words to the left. An all-empty header is left out.

    Characters that are none to be printed are written out: a stranger's file name may hold those that a terminal obeys.

    >>> print(text_table(("name", "n"), [("relu", "0"), ("pau", "10")]))
      name   n
      relu   0
      pau   10
    """
    body = [tuple(map(shown, row)) for row in rows]
    lines = [tuple(map(shown, header)), *body] if any(header) else body
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    right = [
        bool(body) and all(row[column].replace(".", "", 1).isdigit() for row in body) for column in range(len(header))
    ]
    return "\n".join(
        indent
        + "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )
