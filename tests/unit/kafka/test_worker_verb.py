"""``tacet worker``: what it checks in the cluster before it begins, and what it does from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from connectors.cli import worker as worker_verb
from connectors.keys import key_files
from connectors.keys.key_files import FileKeys
from stream.errors import UsageError
from stream.keys import fingerprint
from stream.pipeline import DEFAULTS
from stream.release.stage import MECHANISM_VERSION
from tests.acceptance.command_line import run
from tests.support.small_building import PLAIN, building, policy_text

POLICY = building(releases=PLAIN)
SETTINGS: Any = SimpleNamespace(session_timeout=10.0, open_timeout=60.0)
WATCH: Any = SimpleNamespace(engine=lambda _, engine: engine)


class Started(NamedTuple):
    """A worker that would begin now."""

    config: Any
    engine: Callable[[int], Coroutine[Any, Any, Any]]


class Cluster:
    """A cluster of two partitions that agrees to everything but what ``refuses``."""

    def __init__(self, patch: pytest.MonkeyPatch, key: Path, refuses: str = "") -> None:
        self.key, self.started = key, list[Started]()
        state = SimpleNamespace(
            partitions=2, id="c", key=fingerprint(FileKeys(key)), retired=(), announced=None,
            mechanisms=MECHANISM_VERSION, versions=(MECHANISM_VERSION,), accepted=list, current=lambda: POLICY.version,
        )  # fmt: skip

        def step(name: str, answer: Any = None) -> None:
            async def ask(*_: Any, **__: Any) -> Any:
                if name == refuses:
                    raise UsageError(f"{name} refuses")
                return answer

            patch.setattr(worker_verb, name, ask)

        def refuse_missing(*_: Any) -> None:
            if refuses == "refuse_missing":
                raise UsageError("refuse_missing refuses")

        for name, answer in (("topic_names", []), ("refuse_settings", None), ("checked", state), ("join", state),
                             ("read", state)):  # fmt: skip
            step(name, answer)
        patch.setattr(worker_verb, "refuse_missing", refuse_missing)
        patch.setattr(worker_verb, "result_topics", lambda *_: ())
        patch.setattr(worker_verb, "metadata", SimpleNamespace(publish=self._publish))
        patch.setattr(worker_verb, "run_worker", self._begin)

    async def _publish(self, *_: Any) -> None:
        return None

    def _begin(self, config: Any, engine: Any) -> int:
        self.started.append(Started(config, engine))
        return 0

    def work(self) -> int:
        consent = worker_verb._OperatorConsent(accept_policy=False, again=None, reopened=frozenset(), loss=False)
        job = worker_verb._ClusterJob("broker:9092", POLICY, self.key)
        return worker_verb._work(SETTINGS, job, consent, DEFAULTS, WATCH)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=True)
    return tmp_path / "key"


@pytest.mark.parametrize("refuses", ["refuse_missing", "refuse_settings"])
def test_a_worker_does_not_begin_on_topics_that_are_missing_or_set_otherwise(
    monkeypatch: pytest.MonkeyPatch, key: Path, refuses: str
) -> None:
    cluster = Cluster(monkeypatch, key, refuses)
    with pytest.raises(UsageError, match=f"{refuses} refuses"):
        cluster.work()
    assert not cluster.started


def test_a_partition_that_the_cluster_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch, key: Path) -> None:
    """More partitions than were agreed on: sites would lie on others than their state and ledger."""
    cluster = Cluster(monkeypatch, key)
    assert cluster.work() == 0
    [started] = cluster.started
    for partition in (0, 1):
        assert asyncio.run(started.engine(partition))
    with pytest.raises(UsageError, match="must have 2 partitions like the whole cluster, has 3"):
        asyncio.run(started.engine(2))


@pytest.mark.parametrize(("laboratory", "every"), [(False, [10.0, 600.0]), (True, [10.0])])
def test_a_production_worker_destroys_past_keys_from_time_to_time_and_a_laboratory_keeps_them(
    tmp_path: Path, laboratory: bool, every: list[float]
) -> None:
    key_files.create(tmp_path / "key", laboratory=laboratory, first_day=None if laboratory else 20_000)
    tasks = worker_verb._periodic_tasks("broker:9092", POLICY, FileKeys(tmp_path / "key"))
    assert [task.every for task in tasks] == every


def test_the_worker_is_given_what_its_operator_consents_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: Path
) -> None:
    consents = list[Any]()

    def work(_: Any, job: Any, consent: Any, *__: Any) -> int:
        consents.append((job.policy.version, consent.accept_policy, consent.again, consent.reopened, consent.loss))
        return 0

    monkeypatch.setattr(worker_verb, "_work", work)
    (tmp_path / "policy.toml").write_text(policy_text(PLAIN))
    words = ("worker", "--kafka", "broker:9092", "--policy", tmp_path / "policy.toml", "--key-file", key)
    assert run(*words).code == run(*words, "--accept-policy", "--again", "1", "--accept-loss").code == 0
    assert consents == [
        (POLICY.version, False, None, frozenset(), False), (POLICY.version, True, 1, frozenset(), True)
    ]  # fmt: skip
