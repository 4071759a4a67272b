"""Who may send, with which community; what is refused at the door."""

from pathlib import Path

import pytest

from connectors.sources.ingest.queue import Counters, PendingAcknowledgements, Reply, Requests
from connectors.sources.ingest.source_filter import ANY, AllowList
from connectors.sources.snmp.communities import CommunityAuth, is_known, read_communities
from connectors.sources.snmp.listener import TrapListener
from stream.errors import KeyFileError, UsageError
from stream.records import SECOND


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


def test_however_many_addresses_send_4096_are_remembered_at_most() -> None:
    allow = AllowList(["10.2.0.0/16"])
    for number in range(4097):
        allow.listed(f"10.9.{number // 256}.{number % 256}")
    assert len(allow._cache) <= 4096


@pytest.mark.parametrize("entry", ["::ffff:10.2.0.5", "::ffff:10.2.0.0/112"])
def test_an_entry_that_writes_ipv4_within_ipv6_covers_the_sender(entry: str) -> None:
    allow = AllowList([entry])
    assert [allow.listed(host) for host in ("10.2.0.5", "::ffff:10.2.0.5", "10.3.0.5")] == [entry, entry, None]


@pytest.mark.parametrize("entry", ["10.2.0.300", "10.2.0.1/16", "controller", ""])
def test_an_entry_that_is_no_address_or_block_is_refused_by_name(entry: str) -> None:
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
    counters = Counters(datagrams=3, accepted=1, waiting=1, dropped={"malformed": 0})
    assert not counters.check()
    counters.dropped["malformed"] += 1
    assert counters.check()


def test_every_reason_of_an_entrance_is_counted_apart_and_those_of_every_day_are_some_of_them() -> None:
    entrance = TrapListener(("127.0.0.1", 0), CommunityAuth(AllowList(["127.0.0.1"]), [b"c"]))
    assert len(set(entrance.reasons)) == len(entrance.reasons)
    assert entrance.harmless < set(entrance.reasons)


def test_a_request_is_remembered_for_a_minute() -> None:
    sent: list[tuple[bytes, str]] = []
    requests = Requests(lambda datagram, address: sent.append((datagram, address)))
    reply = Reply(requests, ("a", 1), "there", b"yes")
    assert requests.earlier_is_durable(("a", 1), 0) is None
    requests.remember(reply, 0)
    assert requests.earlier_is_durable(("a", 1), 60 * SECOND) is False
    assert sent == []
    reply.acknowledge()
    assert sent == [(b"yes", "there")]
    assert requests.earlier_is_durable(("a", 1), 60 * SECOND) is True
    assert requests.earlier_is_durable(("a", 2), 60 * SECOND) is None
    assert requests.earlier_is_durable(("a", 1), 60 * SECOND + 1) is None


def test_a_reply_is_buffered_until_it_is_sent_or_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.sources.ingest.queue.ANSWER_OCTETS", 2)
    requests = Requests(lambda *_: None)
    for end in (Reply.acknowledge, Reply.withhold):
        reply = Reply(requests, ("a", end.__name__), None, b"yes")
        requests.remember(reply, 0)
        assert requests.full
        end(reply)
        assert not requests.full


def test_an_answer_is_due_when_its_batch_is_no_longer_open() -> None:
    owed, batch, other = PendingAcknowledgements(), ("dbh", "10.2.0.5"), ("dbh", "10.2.0.6")
    requests = Requests(lambda *_: None)
    first, second = Reply(requests, ("a", 1), None, b"1"), Reply(requests, ("a", 2), None, b"2")
    owed.add(first, batch)
    owed.add(second, other)
    assert list(owed.due({batch, other})) == []
    assert list(owed.due({other})) == [first]
    assert list(owed.due({other})) == []
    assert list(owed.due({})) == [second]
