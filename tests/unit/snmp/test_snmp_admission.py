"""Who may send, with which community; what is refused at the door."""

from pathlib import Path

import pytest

from connectors.snmp.admission import ANY, DROP_REASONS, AllowList, Counters, is_known, read_communities
from connectors.snmp.informs import MEMORY, Answer, Informs
from stream.errors import KeyFileError, UsageError


def test_an_empty_list_refuses_unless_any_sender_was_asked_for() -> None:
    with pytest.raises(UsageError, match="at least one sender"):
        AllowList([])
    assert AllowList([], allow_any=True).listed("10.9.9.9") == ANY


def test_a_sender_is_listed_under_its_narrowest_entry() -> None:
    allow = AllowList(["10.2.0.0/16", "10.2.0.5", "2001:db8::/32"])
    hosts = ["10.2.0.5", "10.2.0.6", "10.3.0.1", "2001:db8::1", "::ffff:10.2.0.5", "fe80::1%eth0"]
    for _ in range(2):  # the second time out of the cache
        assert [allow.listed(host) for host in hosts] == [
            "10.2.0.5", "10.2.0.0/16", None, "2001:db8::/32", "10.2.0.5", None,
        ]  # fmt: skip


@pytest.mark.parametrize("entry", ["::ffff:10.2.0.5", "::ffff:10.2.0.0/112"])
def test_an_entry_that_writes_ipv4_within_ipv6_covers_the_sender(entry: str) -> None:
    allow = AllowList([entry])
    assert [allow.listed(host) for host in ("10.2.0.5", "::ffff:10.2.0.5", "10.3.0.5")] == [entry, entry, None]


@pytest.mark.parametrize("entry", ["10.2.0.300", "10.2.0.1/16", "controller", ""])
def test_what_is_no_address_or_block_is_refused_by_name(entry: str) -> None:
    with pytest.raises(UsageError, match="CIDR"):
        AllowList([entry])


def test_communities_come_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "communities"
    path.write_text("# old and new\ncanary-one\n\n  canary-two \n")
    path.chmod(0o600)
    assert read_communities(path) == (b"canary-one", b"canary-two")
    for mode in (0o640, 0o604, 0o602):
        path.chmod(mode)
        with pytest.raises(KeyFileError, match="chmod 600") as refused:
            read_communities(path)
        assert "canary" not in str(refused.value)
    path.chmod(0o600)
    path.write_text("# none\n")
    with pytest.raises(KeyFileError, match="at least one"):
        read_communities(path)
    with pytest.raises(KeyFileError, match="readable"):
        read_communities(tmp_path / "missing")


def test_any_of_several_communities_is_known_and_no_prefix_is() -> None:
    allowed = (b"old", b"new")
    assert [is_known(c, allowed) for c in (b"old", b"new", b"ne", b"", b"newer", b"NEW")] == [True, True] + [False] * 4


def test_the_counters_notice_a_datagram_that_is_unaccounted_for() -> None:
    counters = Counters(datagrams=3, accepted=1, waiting=1)
    assert not counters.check()
    counters.dropped["malformed"] += 1
    assert counters.check()
    assert len(set(DROP_REASONS)) == len(DROP_REASONS)


def test_an_inform_is_remembered_for_a_minute() -> None:
    informs, answer = Informs(), Answer(("a", 1), None, b"")
    assert informs.earlier(("a", 1), 0) is None
    informs.remember(answer, 0)
    assert informs.earlier(("a", 1), MEMORY) is False
    informs.settle(answer)
    assert informs.earlier(("a", 1), MEMORY) is True
    assert informs.earlier(("a", 2), MEMORY) is None
    assert informs.earlier(("a", 1), MEMORY + 1) is None


def test_an_answer_is_due_when_its_batch_is_no_longer_open() -> None:
    informs, batch, other = Informs(), ("dbh", "10.2.0.5"), ("dbh", "10.2.0.6")
    first, second = Answer(("a", 1), None, b"1"), Answer(("a", 2), None, b"2")
    informs.owe(first, batch)
    informs.owe(second, other)
    assert list(informs.due({batch, other})) == []
    assert list(informs.due({other})) == [first]
    assert list(informs.due({other})) == []
    assert list(informs.due({})) == [second]
