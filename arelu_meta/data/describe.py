"""An image set in words: what `python -m arelu_meta.data show` prints."""

from collections.abc import Sequence

from arelu_meta.data.imageset import ImageSet


def describe(images: ImageSet) -> str:
    """Tell size, classes, images per class, parts, groups, masks, digest and provenance, one per line."""
    height, width = images.image_size
    megabytes = images.images.numel() / 1e6
    counts = images.counts()
    lines = [
        ("name", images.name),
        ("images", f"{len(images):,} of {images.channels}x{height}x{width}, {megabytes:.1f} MB"),
        ("classes", _listed(images.class_names)),
        (
            "per class",
            f"min {int(counts.min())}, median {float(counts.double().quantile(0.5)):g}, max {int(counts.max())}",
        ),
    ]
    for part, numbers in images.parts.items():
        classes = len(set(images.labels[numbers].tolist()))
        lines.append((f"part {part}", f"{len(numbers):,} images of {classes:,} classes"))
    if images.groups is not None:
        lines.append(("groups", _listed(images.group_names)))
    if images.masks is not None:
        filled = int(images.masks.flatten(1).any(1).sum())
        share = float((images.masks > 0).double().mean())
        lines.append(("masks", f"{filled:,} of {len(images):,} not empty, {share:.2%} of the pixels"))
    lines += [
        ("digest", images.digest),
        ("source", images.provenance.source),
        ("verified", "yes" if images.provenance.verified else "no: not known to be the publisher's own files"),
    ]
    lines += [(f"file {name}", sha) for name, sha in images.provenance.files.items()]
    widest = max(len(key) for key, _ in lines)
    return "\n".join(f"{key:<{widest}}  {value}" for key, value in lines)


def _listed(names: Sequence[str], most: int = 10) -> str:
    """Count names and list the first of them.

    >>> _listed(["a", "b", "c"], most=2)
    '3: a, b, ...'
    """
    return f"{len(names):,}: {', '.join(names[:most])}{', ...' if len(names) > most else ''}"
