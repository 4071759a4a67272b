"""``tacet sink``: topics that it refuses, and what a new webhook begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.sinks import mqtt
from connectors.sinks.webhooks import WebhookSink
from tests.acceptance.command_line import run
from tests.support.released_store import count, give

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.parametrize("words", [("--prefix", "a+b"), ("--prefix", "a/#"), ("--prefix", "/"), ("--prefix", "$SYS"),
                                   ("--home-assistant", "home#")])  # fmt: skip
def test_a_prefix_is_a_topic_without_wildcards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(mqtt, "Broker", lambda *_: pytest.fail("no broker must be reached"))
    store = give(tmp_path / "store", [count(1, {"a": 1})])
    common = ("--store", store, "--audience", "public", "--cursor", tmp_path / "cursor", "--until-end")
    done = run("sink", "mqtt", *common, "--broker", "127.0.0.1:1", *words)
    assert (done.code, "--prefix: must be a topic without + # and $" in done.problem) == (2, True), done.problem


@pytest.mark.parametrize(("words", "reported"), [((), [3]), (("--from-start",), [1, 2, 3])])
def test_a_new_webhook_reports_what_comes_next_or_all_from_the_first_release_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], reported: list[int]
) -> None:
    values = list[int]()

    async def deliver(_: WebhookSink, record: Any) -> None:
        values.append(record["values"]["a"])

    monkeypatch.setattr(WebhookSink, "deliver", deliver)
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    store = give(tmp_path / "store", [count(number, {"a": number}) for number in (1, 2)])
    to = ("--to", "https://example.org/hook", "--secret-file", tmp_path / "secret")
    common = ("--store", store, "--audience", "public", "--cursor", tmp_path / "cursor", "--until-end")
    assert run("sink", "webhook", *common, *to, *words).code == 0
    give(store, [count(3, {"a": 3})])
    assert run("sink", "webhook", *common, *to, *words).code == 0
    assert values == reported
