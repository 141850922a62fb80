"""Entries of journals: what a run writes is read, anything else is refused in one line."""

import pytest

from arelu_meta.store.entries import parse_entry


def test_points_of_any_number():
    entry = parse_entry(b'{"kind": "metrics", "time": 1, "points": [["loss", NaN, 1, 0], ["n", 3, 1, -1]]}')
    assert entry["points"][1] == ["n", 3, 1, -1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[]", "should be an object"),
        (b"{}", "kind"),
        (b"[" * 100_000, "recursion limit"),
        (b'{"kind": "import os"}', "does not match any of the expected tags"),
        (b'{"kind": "end", "time": 1, "status": "RUNNING"}', "status"),
        (b'{"kind": "end", "time": 1e400, "status": "FAILED"}', "time"),
        (b'{"kind": "tags", "values": {"a": {"b": 1}}}', "values.a"),
        (b'{"kind": "metrics", "points": [["loss", "0.5", 1, 0]]}', "points.0.1"),
        (b'{"kind": "metrics", "points": [["loss", 0.5, 1, 9223372036854775808]]}', "points.0.3"),
        (
            b'{"kind": "dataset", "context": "", "dataset": '
            b'{"name": "", "digest": "", "source_type": "", "source": "", "more": ""}}',
            "more",
        ),
    ],
)
def test_what_no_run_writes(text: bytes, message: str):
    with pytest.raises(ValueError, match=message) as raised:
        parse_entry(text)
    assert "\n" not in str(raised.value)
