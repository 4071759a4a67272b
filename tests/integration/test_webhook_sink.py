"""The webhook sink against a real receiver, which verifies with the library of Standard Webhooks."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvicorn
from aiokafka import AIOKafkaProducer
from standardwebhooks import Webhook, WebhookVerificationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from connectors.secrets.private_files import read_secrets
from connectors.sinks import webhooks
from connectors.sinks.feed import deliver_releases, notes_of
from connectors.sinks.triggers import Trigger
from connectors.sinks.webhooks import WebhookSink, _ReceiverBusyError
from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.topics import create_topics
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.order import Release
from stream.errors import UsageError
from stream.schemas import private_topic
from tests.acceptance.command_line import command
from tests.support.any_broker import AnyBroker, on_any_broker
from tests.support.released_store import count, give

SECRET = "whsec_" + base64.b64encode(b"a secret of a test, 24 bytes or more").decode()


class Receiver:
    """Verifies what it is sent, and answers as it is told."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Any]] = []
        self.refused = 0
        self.answers: list[int] = []
        self.chance: random.Random | None = None
        self.url = ""

    async def hook(self, request: Request) -> Response:
        body = await request.body()
        try:
            event = Webhook(SECRET).verify(body, dict(request.headers))
        except WebhookVerificationError:
            self.refused += 1
            return Response(status_code=400)
        status = self.answers.pop(0) if self.answers else 204
        if self.chance is not None and self.chance.random() < 0.3:
            status = 503
        if status < 300:
            self.taken.append((request.headers["webhook-id"], event))
        return Response(status_code=status)

    @property
    def ids(self) -> list[str]:
        return [identity for identity, _ in self.taken]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "FIRST_WAIT", 0.01)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = Starlette(routes=[Route("/hook", receiver.hook, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    receiver.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/hook"
    yield receiver
    server.should_exit = server.force_exit = True
    await task


async def report(
    receiver: Receiver, folder: Path, trigger: Trigger, *, from_start: bool = True, secret: str = SECRET
) -> None:
    """Report what the store holds and has not been reported."""
    cursor = Cursor(folder / "cursor")
    sink = WebhookSink(receiver.url, lambda: (secret,), trigger, notes_of(cursor))
    source: Any = {"store": folder / "store", "audience": "public"}
    try:
        await deliver_releases(source, cursor, sink.deliver, None if from_start else sink.begin, until_end=True)
    finally:
        await sink.close()


async def test_every_release_is_reported_signed_with_its_id_and_its_record(receiver: Receiver, tmp_path: Path) -> None:
    records = [count(n, {"a": n} if n != 2 else None) for n in range(4)]
    give(tmp_path / "store", records)
    await report(receiver, tmp_path, Trigger("release"))
    assert receiver.ids == [record["release_id"] for record in records]
    assert [event for _, event in receiver.taken] == [
        {"type": "tacet.release", "timestamp": record["window_end"], "data": record} for record in records
    ]
    assert receiver.refused == 0


async def test_a_signature_is_over_id_time_and_body(receiver: Receiver) -> None:
    """Each of them changed by itself is refused by the library; as sent they are accepted."""
    sink, body = WebhookSink(receiver.url, lambda: (SECRET,), Trigger("release"), {}), b'{"a":1}'
    headers, verify = sink._headers("dbh.x/occupancy", body), Webhook(SECRET).verify
    await sink.close()
    assert verify(body, headers) == {"a": 1}
    assert "." not in headers["webhook-id"]
    later = str(int(headers["webhook-timestamp"]) + 1)
    for changed in ({"webhook-id": "other"}, {"webhook-timestamp": later}):
        with pytest.raises(WebhookVerificationError):
            verify(body, headers | changed)
    with pytest.raises(WebhookVerificationError):
        verify(b'{"a":2}', headers)


async def test_while_a_secret_is_changed_both_sign_and_nothing_is_restarted(tmp_path: Path) -> None:
    file, new = tmp_path / "secret", "whsec_" + base64.b64encode(b"n" * 32).decode()
    file.touch(mode=0o600)
    file.write_text(f"{SECRET}\n")
    sink = WebhookSink("https://example.org", partial(read_secrets, file, 2), Trigger("release"), {})
    taken: list[list[bool]] = []
    for lines in (f"{SECRET}\n", f"{new}\n{SECRET}\n", f"{new}\n", ""):
        file.write_text(lines)
        if not lines:
            with pytest.raises(_ReceiverBusyError):  # nothing is sent amid an edit
                sink._headers("id", b"{}")
            continue
        headers, accepted = sink._headers("id", b"{}"), []
        for secret in (SECRET, new):
            try:
                accepted.append(Webhook(secret).verify(b"{}", headers) == {})
            except WebhookVerificationError:
                accepted.append(False)
        taken.append(accepted)
    await sink.close()
    assert taken == [[True, False], [True, True], [False, True]]


async def test_a_receiver_that_is_busy_is_asked_again_until_it_takes_it(receiver: Receiver, tmp_path: Path) -> None:
    records = [count(n, {"a": n}) for n in range(3)]
    give(tmp_path / "store", records)
    receiver.answers = [503, 500, 429, 204, 408, 204]
    await report(receiver, tmp_path, Trigger("release"))
    assert receiver.ids == [record["release_id"] for record in records]
    assert receiver.answers == []


@pytest.mark.parametrize("status", [301, 400, 401, 404, 410])
async def test_a_receiver_that_refuses_for_good_ends_the_sink_and_nothing_is_passed_over(
    receiver: Receiver, tmp_path: Path, status: int
) -> None:
    records = [count(n, {"a": n}) for n in range(3)]
    give(tmp_path / "store", records)
    receiver.answers = [204, status]
    with pytest.raises(UsageError, match=f"--to: must accept reports, but answered {status}"):
        await report(receiver, tmp_path, Trigger("release"))
    await report(receiver, tmp_path, Trigger("release"))
    assert list(dict.fromkeys(receiver.ids)) == [record["release_id"] for record in records]


async def test_a_wrong_secret_is_refused_by_the_receiver(receiver: Receiver, tmp_path: Path) -> None:
    give(tmp_path / "store", [count(1, {"a": 1})])
    other = "whsec_" + base64.b64encode(b"another secret that nobody knows of").decode()
    with pytest.raises(UsageError, match="answered 400"):
        await report(receiver, tmp_path, Trigger("release"), secret=other)
    assert receiver.taken == []


async def test_a_sink_that_is_killed_fifty_times_reports_everything_at_least_once_and_in_order(
    receiver: Receiver, tmp_path: Path
) -> None:
    chance, records = random.Random(11), [count(n, {"a": n}) for n in range(120)]
    receiver.chance = random.Random(12)
    store = give(tmp_path / "store", records[:20])
    for life in range(50):
        give(store, records[20 + 2 * life : 22 + 2 * life])
        with suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(0.0, 0.1)):
                await report(receiver, tmp_path, Trigger("release"))
    await report(receiver, tmp_path, Trigger("release"))
    assert list(dict.fromkeys(receiver.ids)) == [record["release_id"] for record in records]


async def test_a_new_sink_begins_at_the_present_and_knows_it(receiver: Receiver, tmp_path: Path) -> None:
    """10 was there when it began, so 30 is a change; what came before is not reported."""
    store = give(tmp_path / "store", [count(n, {"a": value}) for n, value in enumerate((90, 50, 10))])
    await report(receiver, tmp_path, Trigger("change"), from_start=False)
    assert receiver.taken == []
    give(store, [count(3, {"a": 11}), count(4, {"a": 30})])
    await report(receiver, tmp_path, Trigger("change"), from_start=False)
    ((_, event),) = receiver.taken
    assert (event["type"], event["data"]["value"], event["data"]["previous"]) == ("tacet.change", 30, 10)


async def test_the_side_of_a_threshold_is_remembered_over_a_restart(receiver: Receiver, tmp_path: Path) -> None:
    store = give(tmp_path / "store", [count(0, {"a": 10})])
    for number, value in enumerate((30, 31, 10), start=1):
        await report(receiver, tmp_path, Trigger("crossing", 20.0), from_start=False)
        give(store, [count(number, {"a": value})])
    await report(receiver, tmp_path, Trigger("crossing", 20.0), from_start=False)
    assert [event["data"]["side"] for _, event in receiver.taken] == ["above", "below"]


@on_any_broker
async def test_from_kafka_a_sink_goes_on_where_it_was_and_a_new_one_begins_at_the_present(
    broker: AnyBroker, tmp_path: Path, prefix: str
) -> None:
    topic = private_topic(prefix, "occupancy")
    await create_topics(broker.bootstrap, [topic], partitions=2)
    records = [count(n, {"a": n}, site=site) for n in range(12) for site in ("east", "west")]
    source: Any = {"kafka": broker.bootstrap, "audience": prefix}
    present: list[str] = []
    delivered: list[str] = []

    async def begin(record: Release) -> None:
        present.append(record["release_id"])

    async def deliver(record: Release) -> None:
        delivered.append(record["release_id"])

    for first, last in ((0, 8), (8, 16), (16, 24)):
        await produce(broker, topic, records[first:last])
        await deliver_releases(source, Cursor(tmp_path / "cursor"), deliver, begin, until_end=True)
    assert present == [record["release_id"] for record in records[6:8]]
    assert delivered == [record["release_id"] for record in records[8:]]


async def produce(broker: AnyBroker, topic: str, records: list[dict[str, Any]]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for record in records:
        key = record["site"].encode()
        await producer.send_and_wait(topic, orjson.dumps(record), key=key, partition=partition_of(record["site"], 2))
    await producer.stop()


@pytest.mark.parametrize("url", ["http://192.0.2.1/hook", "ftp://127.0.0.2/", "example.org", ""])
def test_what_is_reported_leaves_the_machine_encrypted_or_not_at_all(url: str) -> None:
    with pytest.raises(UsageError, match="--to: must be an address that begins with https"):
        WebhookSink(url, lambda: (SECRET,), Trigger("release"), {})


SHORT = base64.b64encode(b"23 bytes are not enough").decode()


@pytest.mark.parametrize("secret", ["whsec_", "", "whsec_a", "whsec_" + SHORT, SECRET[6:], SECRET + "!"])
def test_a_secret_that_is_none_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(UsageError, match="--secret-file: must contain whsec_") as reported:
        WebhookSink("https://example.org", lambda: (secret,), Trigger("release"), {})
    assert len(secret) < 8 or secret[6:] not in str(reported.value)


async def test_the_command_reports_and_shows_neither_secret_nor_count(receiver: Receiver, tmp_path: Path) -> None:
    give(tmp_path / "store", [count(1, {"a": 424_242})])
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    receiver.answers = [503]
    words: list[str | Path] = ["sink", "webhook", "--store", tmp_path / "store", "--audience", "public"]
    words += ["--cursor", tmp_path / "cursor", "--from-start", "--until-end", "--to", receiver.url,
              "--secret-file", tmp_path / "secret"]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command(words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    assert len(receiver.taken) == 1
    kept = output.decode() + (tmp_path / "cursor").read_text()
    assert not [word for word in (SECRET, SECRET[6:], "424242", "424_242") if word in kept]
    assert json.loads((tmp_path / "cursor").read_bytes())["home"] == "store"
