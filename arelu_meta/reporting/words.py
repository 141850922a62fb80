"""Counts and lists as sentences have them."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Write how many there are.

    >>> counted(1, "arm"), counted(4, "arm")
    ('1 arm', '4 arms')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def are(number: int) -> str:
    """Write the verb that goes with a number of things.

    >>> are(1), are(0)
    ('is', 'are')
    """
    return "is" if number == 1 else "are"


def listed(words: Sequence[str]) -> str:
    """Write a list into a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
