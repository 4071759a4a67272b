"""A broker that is away is retried for a limited time; other errors are raised at once."""

from __future__ import annotations

import pytest

from connectors.storage.kafka import client
from connectors.storage.kafka.client import with_retry


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)


class Broker:
    """Answers from its third question on."""

    def __init__(self, answers_from: int = 3, error: type[Exception] = ConnectionError) -> None:
        self.asked, self._from, self._error = 0, answers_from, error

    async def ask(self) -> int:
        self.asked += 1
        if self.asked < self._from:
            raise self._error("who is where")
        return self.asked


async def test_it_is_asked_until_it_answers_and_no_text_of_an_error_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        assert await with_retry(Broker().ask, ConnectionError, TimeoutError) == 3
    assert caplog.messages == ["tried again after an error: ConnectionError"] * 2


async def test_another_error_is_raised_at_once() -> None:
    broker = Broker(error=ValueError)
    with pytest.raises(ValueError, match="who is where"):
        await with_retry(broker.ask, ConnectionError)
    assert broker.asked == 1


async def test_patience_ends() -> None:
    broker = Broker(answers_from=10_000)
    with pytest.raises(TimeoutError, match=r"^Kafka: must answer within 0.2 s; no answer came$"):
        await with_retry(broker.ask, ConnectionError, TimeoutError, seconds=0.2)
    assert broker.asked > 1
