"""A service that outlives an outage of Kafka's brokers, and says for how long they have not answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, TopicAuthorizationFailedError

from connectors.serve import broker_contact
from connectors.serve.broker_contact import BrokerContact
from connectors.serve.topics import TopicOfView
from connectors.storage.kafka.client import NoAnswerError
from connectors.storage.kafka.connection import AccessRefusedError
from stream.errors import FinalityError, UsageError
from tests.support.patience import within_patience
from tests.unit.serve import test_feed_positions as feed_positions

AWAY = [
    ConnectionError("away"), KafkaConnectionError("away"), KafkaTimeoutError("away"), NoAnswerError("away"),
    AccessRefusedError("a password is being exchanged"), TimeoutError(),
]  # fmt: skip
WRONG = [FinalityError("another"), UsageError("made anew"), TopicAuthorizationFailedError("topic"), ValueError()]


class Task:
    """A task that ends by one error after the other."""

    def __init__(self, errors: Sequence[BaseException]) -> None:
        self._errors = [*errors]

    async def follow(self) -> None:
        raise self._errors.pop(0)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROBE_SECONDS", "FIRST_WAIT"):
        monkeypatch.setattr(broker_contact, name, 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("wrong", WRONG, ids=[type(error).__name__ for error in WRONG])
async def test_a_task_is_restarted_after_each_outage_and_ends_by_other_errors(wrong: BaseException) -> None:
    contact = BrokerContact(needed=False)
    with pytest.raises(type(wrong)):
        await within_patience(contact.lasting(Task([*AWAY, wrong]).follow), "the error that is none of an outage")
    assert contact.outage_seconds() is not None


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("away", AWAY, ids=[type(error).__name__ for error in AWAY])
async def test_an_outage_at_the_start_is_an_error_if_there_is_nothing_to_serve(away: BaseException) -> None:
    contact = BrokerContact(needed=True)
    with pytest.raises(type(away)):
        await within_patience(contact.lasting(Task([away]).follow), "the error")
    contact.answered()
    with pytest.raises(FinalityError):  # from then on it is outlived
        await within_patience(contact.lasting(Task([away, FinalityError("end")]).follow), "the end of the errors")


def test_an_outage_lasts_from_the_last_answer_on() -> None:
    """Figures are as old as the last answer, which came before anybody noticed that there are no more."""
    clock = Clock()
    contact = BrokerContact(needed=False, clock=clock)
    assert contact.outage_seconds() is None
    contact.answered()
    clock.now += 40
    assert contact.outage_seconds() is None
    contact.failed(ConnectionError())
    assert contact.outage_seconds() == 40
    clock.now += 5
    contact.failed(ConnectionError())
    assert contact.outage_seconds() == 45
    contact.answered()
    assert contact.outage_seconds() is None


def test_the_log_names_each_outage_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    contact = BrokerContact(needed=False, clock=clock)
    contact.answered()
    for _ in range(3):
        clock.now += 30
        contact.failed(ConnectionError("10.2.0.5"))
    for _ in range(2):
        clock.now += 5
        contact.answered()
    assert [record.getMessage() for record in caplog.records] == [
        "no broker answers (ConnectionError); records that were read before are served",
        "a broker answers again, after 95 s",
    ]


@pytest.mark.usefixtures("at_once")
async def test_an_outage_is_noticed_although_no_reader_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that waits for records waits through an outage without a word."""
    contact = BrokerContact(needed=False)
    answers: list[BaseException | None] = [None, ConnectionError("away"), None, UsageError("end")]
    states = []

    async def names(servers: str) -> list[str]:
        states.append(contact.outage_seconds() is None)
        if (error := answers.pop(0)) is not None:
            raise error
        return []

    monkeypatch.setattr(broker_contact, "topic_names", names)
    with pytest.raises(UsageError):
        await within_patience(contact.ask("servers"), "the last answer")
    assert states == [True, True, False, True]


async def test_a_view_resumes_at_its_position_when_its_topic_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused messages were counted once more after each outage."""
    taken: list[bytes] = []
    view = TopicOfView("servers", feed_positions.PLACE.topic, taken.extend)
    for end in (8, 9):
        feed_positions.stand_in_topic(monkeypatch, begin=0, end=end)
        following = asyncio.ensure_future(view.follow())
        while len(taken) < end:
            await asyncio.sleep(0)
        following.cancel()
        await asyncio.wait({following})
    assert taken == [feed_positions.record(number) for number in range(9)]


class SlowToCancel:
    """A client whose request ends with an error of its own when its task is cancelled."""

    def __init__(self) -> None:
        self.started = asyncio.Event()

    async def __call__(self, *_: object) -> list[str]:
        assert not self.started.is_set(), "a cancelled task asks again"
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("away") from None
        return []


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("work", ["ask", "lasting"])
async def test_a_cancelled_task_ends_also_if_its_request_ends_with_an_error(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, contact = SlowToCancel(), BrokerContact(needed=False)
    monkeypatch.setattr(broker_contact, "topic_names", request)
    running = contact.ask("127.0.0.1:1") if work == "ask" else contact.lasting(request)  # type: ignore[arg-type]
    task = asyncio.create_task(running)
    await within_patience(request.started.wait(), "the request")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within_patience(task, "the task to end")
