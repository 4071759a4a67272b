"""Passwords of brokers and mail servers come from a file that may change while a sink runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from connectors.cli.sink import sink
from connectors.sinks import mail, mqtt
from stream.errors import KeyFileError
from stream.settings import Settings

WORDS = {
    "mqtt": ["--broker", "127.0.0.1:1"],
    "mail": ["--smtp", "127.0.0.1:1", "--from", "a@example.org", "--to", "b@example.org"],
}


class _ReachedError(Exception):
    """The command has made what connects."""


def password_of(verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Return the reader of the password that a command hands to what connects."""
    given: list[Any] = []

    def connects(*words: Any) -> None:
        given.extend(words)
        raise _ReachedError

    module, name = (mqtt, "Broker") if verb == "mqtt" else (mail, "Server")
    monkeypatch.setattr(module, name, connects)
    (folder / "store").mkdir(exist_ok=True)
    common = ["--store", str(folder / "store"), "--audience", "public", "--cursor", str(folder / "cursor")]
    words = [verb, *common, *WORDS[verb], "--username", "u", "--password-file", str(folder / "secret")]
    done = CliRunner().invoke(sink, words, obj=Settings(), standalone_mode=False)
    if not isinstance(done.exception, _ReachedError):
        raise done.exception or AssertionError(done.output)
    reader: Callable[[], str] = next(each for each in given if callable(each))
    return reader


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("before\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("verb", WORDS)
def test_a_changed_password_takes_effect_with_the_next_connection(
    verb: str, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = password_of(verb, secret.parent, monkeypatch)
    assert password() == "before"
    secret.write_text("after\n")
    assert password() == "after"


@pytest.mark.parametrize("verb", WORDS)
def test_a_password_file_that_others_can_read_is_refused_at_the_start(
    verb: str, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret.chmod(0o644)
    with pytest.raises(KeyFileError, match="secret"):
        password_of(verb, secret.parent, monkeypatch)


async def test_each_client_of_a_broker_has_the_password_of_its_time() -> None:
    passwords = iter(("before", "after"))
    broker = mqtt.Broker("127.0.0.1", 1, tls=False, username="u", password=lambda: next(passwords))
    clients = [broker.client("tacet")._client for _ in range(2)]
    assert [client._password for client in clients] == [b"before", b"after"]
