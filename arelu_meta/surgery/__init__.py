"""Activation surgery: swap the activations of a built network call site by call site, and put them back.

    from arelu_meta.surgery import swap, restore

    report = swap(network, to="arelu", preserve=True)   # in place
    print(report)                                       # a table of every site
    restore(network, report)                            # bit for bit what it was

See docs/surgery.md for which torchvision and timm networks it takes.
"""

from arelu_meta.surgery.report import LeftReport, SiteReport, SwapReport
from arelu_meta.surgery.swap import restore, swap

__all__ = ["LeftReport", "SiteReport", "SwapReport", "restore", "swap"]
