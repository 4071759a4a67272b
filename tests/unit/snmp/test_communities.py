"""Communities change while a receiver listens: two count while a controller is changed over; nothing is restarted."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.communities import CommunityAuth, CommunityFile
from connectors.sources.snmp.listener import TrapListener
from stream.errors import KeyFileError


def write(path: Path, *lines: str, mode: int = 0o600) -> None:
    new = path.with_name("new")
    new.write_text("".join(f"{line}\n" for line in lines))
    new.chmod(mode)
    new.replace(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "communities", "old-one")
    return tmp_path / "communities"


def test_a_new_community_is_accepted_at_once_and_the_old_one_until_it_is_removed(file: Path) -> None:
    senders = CommunityAuth(AllowList(["127.0.0.1"]), CommunityFile(file))
    assert [senders.share(each) for each in (b"old-one", b"new-one")] == [True, False]
    write(file, "old-one", "new-one")
    assert [senders.share(each) for each in (b"new-one", b"old-one")] == [True, True]
    write(file, "new-one")
    TrapListener(("127.0.0.1", 0), senders).after_batch()
    assert [senders.share(each) for each in (b"new-one", b"old-one")] == [True, False]


def test_a_sender_of_communities_is_one_that_is_listed(file: Path) -> None:
    senders = CommunityAuth(AllowList(["127.0.0.0/24"]), CommunityFile(file))
    assert [senders.listed(each) for each in ("127.0.0.9", "127.0.1.9")] == ["127.0.0.0/24", None]
    assert senders.any_community
    assert not CommunityAuth(AllowList(["127.0.0.0/24"]), (), or_v3=True).any_community


@pytest.mark.parametrize("how", ["gone", "empty", "open"])
def test_an_invalid_file_changes_nothing_and_is_reported_once(file: Path, how: str) -> None:
    stored = CommunityFile(file)
    if how == "gone":
        file.unlink()
    else:
        write(file, *(["s3cret"] if how == "open" else []), mode=0o644 if how == "open" else 0o600)
    with capture_logs() as lines:
        assert [stored.knows(each) for each in (b"s3cret", b"old-one", b"s3cret")] == [False, True, False]
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "s3cret" not in str(lines)
    write(file, "new-one")
    assert stored.knows(b"new-one")


def test_at_the_start_such_a_file_is_refused(file: Path) -> None:
    file.chmod(0o644)
    with pytest.raises(KeyFileError, match="must be readable by its owner only"):
        CommunityFile(file)


def test_a_file_that_has_not_changed_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = CommunityFile(file)
    monkeypatch.setattr("connectors.sources.snmp.communities.read_communities", lambda _: pytest.fail("read"))
    assert not stored.knows(b"another")
    assert not stored.renew()
