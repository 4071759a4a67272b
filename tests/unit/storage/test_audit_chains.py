"""Audit chains as storages keep them: who else knows how far each has come."""

from __future__ import annotations

import pytest

from connectors.storage import audit_chains
from connectors.storage.audit_chains import audit_of, heads_of, parse_entries
from stream.accounting.audit import ChainLink
from stream.errors import AuditError


def test_entries_are_json_objects_and_others_are_refused_and_not_shown() -> None:
    assert list(parse_entries([b'{"sequence": 1}'])) == [{"sequence": 1}]
    with pytest.raises(AuditError, match="every entry must be a JSON object") as refused:
        list(parse_entries([b'{"sequence": 1}', b"hidden"]))
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(("states", "mark", "name"), [
    ([{"dbh": ChainLink(1, "ab" * 32)}], None, "the state"),
    ([], {"dbh": ChainLink(1, "ab" * 32)}, "the mark"),
])  # fmt: skip
def test_a_chain_that_lacks_what_state_or_mark_know_is_cut(
    states: list[dict[str, ChainLink]], mark: dict[str, ChainLink] | None, name: str
) -> None:
    with pytest.raises(AuditError, match=name):
        audit_of(states, mark).chains([])


def test_nothing_is_missing_where_nobody_knows_anything() -> None:
    assert audit_of([], None).chains([]) == {}
    assert heads_of(None) == {}


def test_a_snapshot_knows_the_last_link_of_each_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_chains, "chains", lambda snapshot: {"dbh": (3, snapshot.decode())})
    assert heads_of(b"ab") == {"dbh": ChainLink(3, "ab")}
