"""Broker errors are reported as such, without the content of messages."""

from __future__ import annotations

import sys

import pytest
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError, TopicAuthorizationFailedError

from connectors.cli import main
from connectors.storage.kafka.broker_errors import broker_error

SECRET = "5c:52:1e:00:20:11"


@pytest.mark.parametrize("kind", [KafkaConnectionError, MessageSizeTooLargeError, TopicAuthorizationFailedError])
def test_a_brokers_error_is_told_by_kind_alone(kind: type[Exception]) -> None:
    report = broker_error(kind(SECRET))
    assert report is not None
    assert report.startswith(f"Kafka: {kind.__name__}")
    assert SECRET not in report


def test_the_fixed_words_of_an_errors_kind_are_told_where_it_has_any() -> None:
    for description, told in (("is away.", "Kafka: MadeError: is away"), ("", "Kafka: MadeError")):
        made = type("MadeError", (Exception,), {"__module__": "aiokafka.errors", "description": description})
        assert broker_error(made(SECRET)) == told


def test_any_other_error_is_not_the_brokers() -> None:
    assert broker_error(RuntimeError("x")) is None


def test_the_command_line_blames_the_broker_and_not_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused() -> None:
        raise TopicAuthorizationFailedError(SECRET)

    monkeypatch.setattr(main, "_run", refused)
    monkeypatch.setattr(sys, "argv", ["tacet", "topics"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    output = capsys.readouterr().err
    assert "Kafka: TopicAuthorizationFailedError" in output
    assert "internal error" not in output
    assert SECRET not in output
