"""The byte form of states and snapshots: one line of JSON and named binary parts."""

from __future__ import annotations

import pytest

from stream.encryption import Kind, join_parts, seal, split_parts
from stream.engine.snapshot import SnapshotHead, open_snapshot, seal_snapshot
from stream.errors import DataError

HEAD = {"next": 7, "text": "a line\nfeed"}
PARTS = {"b": b"\n\x00{}", "a": b"", "name with\nfeed": b"xyz"}


def test_head_and_parts_come_back_as_they_were_in_their_order() -> None:
    head, parts = split_parts(join_parts(HEAD, PARTS))
    assert head == HEAD
    assert list(parts.items()) == list(PARTS.items())


def test_no_parts_are_none() -> None:
    assert split_parts(join_parts({}, {})) == ({}, {})


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"{}",
        b"{}\n",
        b"[]\n",
        b'{"parts":[["a",2]]}\nx',
        b'{"parts":[["a",0]]}\nx',
        b'{"parts":[["a"]]}\n',
        b"?\n",
    ],
)
def test_bytes_that_are_no_such_form_are_refused(wrong: bytes) -> None:
    with pytest.raises(DataError, match="one line of JSON"):
        split_parts(wrong)


def test_a_form_cut_short_anywhere_is_refused() -> None:
    whole = join_parts(HEAD, PARTS)
    for length in range(len(whole)):
        with pytest.raises(DataError):
            split_parts(whole[:length])


def test_a_snapshot_without_an_envelope_and_a_site_without_one_are_refused() -> None:
    site = join_parts({}, {"sense": b"{}"})
    with pytest.raises(DataError, match="snapshot: must be a complete envelope of its kind"):
        open_snapshot(join_parts({"next": 1}, {"dbh": site}))
    with pytest.raises(DataError, match="site: must be a complete envelope of its kind"):
        open_snapshot(seal_snapshot(SnapshotHead(1, 0, "p", "m", "k", None), {"dbh": site}))


def test_a_snapshot_whose_head_lacks_a_field_is_refused() -> None:
    head = SnapshotHead(1, 0, "p", "m", "k", (0, "digest"), before="m").document()
    assert SnapshotHead.of_document(head).document() == head | {"last": (0, "digest")}
    for name in head.keys() - {"adopt"}:
        lacking = {key: value for key, value in head.items() if key != name}
        with pytest.raises(DataError, match="snapshot: must have the fields of its head"):
            open_snapshot(seal(Kind.SNAPSHOT, join_parts(lacking, {})))
