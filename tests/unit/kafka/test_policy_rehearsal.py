"""A policy that a partition's state does not fit is refused before the cluster accepts it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.cli import worker
from connectors.keys import key_files
from connectors.storage.kafka import cluster
from stream.errors import UsageError
from stream.pipeline import DEFAULTS, Pipeline
from stream.release.stage import MECHANISM_VERSION
from tests.support.small_building import laboratory
from tests.unit.engine.test_partition_takeover import NEW, OLD, scenario


def control(current: str = OLD.version) -> Any:
    return SimpleNamespace(
        partitions=1, versions=(MECHANISM_VERSION,), accepted=lambda: [OLD],
        current=lambda: current, id="c",
    )  # fmt: skip


@pytest.fixture(autouse=True)
def saved(monkeypatch: pytest.MonkeyPatch) -> None:
    async def state(bootstrap: str, partition: int) -> bytes | None:
        return scenario().snapshot if partition == 0 else None

    monkeypatch.setattr(cluster, "_state", state)


async def test_a_policy_that_every_state_can_go_on_under_is_taken() -> None:
    await cluster.refuse_unfit("", control(), NEW, laboratory(), DEFAULTS)


@pytest.mark.parametrize(("step", "turn"), [("migrate", 1), ("encode", 2), ("decode", 2)])  # the old policy's are first
async def test_a_policy_whose_adoption_fails_is_refused_with_nothing_accepted(
    monkeypatch: pytest.MonkeyPatch, step: str, turn: int
) -> None:
    was, turns = getattr(Pipeline, step), itertools.count(1)

    def failing(self: Pipeline, state: Any) -> Any:
        if next(turns) == turn:
            raise KeyError("what a state holds is not quoted")
        return was(self, state)

    monkeypatch.setattr(Pipeline, step, failing)
    with pytest.raises(UsageError, match=r"partition 0 must be .*\(KeyError\); nothing was accepted") as refused:
        await cluster.refuse_unfit("", control(), NEW, laboratory(), DEFAULTS)
    assert "quoted" not in str(refused.value)
    await cluster.refuse_unfit("", control(NEW.version), NEW, laboratory(), DEFAULTS)  # it has begun already


async def test_a_state_that_grows_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "MAX_RECORD", 10)
    with pytest.raises(UsageError, match="state of partition 0 must be at most"):
        await cluster.refuse_unfit("", control(), NEW, laboratory(), DEFAULTS)


def test_a_worker_tries_a_policy_before_it_consents(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fake(name: str, answer: Any = None) -> Any:
        async def ask(*_: Any, **__: Any) -> Any:
            asked.append(name)
            if name == "refuse_unfit":
                raise UsageError("does not fit")
            return answer

        return ask

    for name, answer in (("topic_names", []), ("refuse_settings", None), ("checked", control()),
                         ("refuse_unfit", None), ("join", None)):  # fmt: skip
        monkeypatch.setattr(worker, name, fake(name, answer))
    for name in ("refuse_missing", "refuse_retired"):
        monkeypatch.setattr(worker, name, lambda *_: None)
    keys: Any = SimpleNamespace(vault=None, ledger="l", laboratory=False)
    monkeypatch.setattr(key_files, "FileKeys", lambda _: keys)
    nothing: Any = None
    consent = worker._OperatorConsent(accept_policy=True, again=None, reopened=frozenset(), loss=False)
    with pytest.raises(UsageError, match="does not fit"):
        worker._work(nothing, worker._ClusterJob("", NEW, nothing), consent, DEFAULTS, nothing)
    assert "join" not in asked
