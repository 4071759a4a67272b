"""A crash never draws other noise for the same differences of a day's changes, and released bytes stay the same.

Every draw is written down: for which window, release and level, for which sums, and what came out. An engine that goes
on from an earlier snapshot, and an embedded runner that is killed before and after each of its durable steps, draw many
of them again. For one window and level there may be one sum and one noise of each audience, whatever happened.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from connectors.keys import key_files
from connectors.storage.embedded.reader import read_outbox, read_topic
from connectors.storage.embedded.rollback_mark import MarkFile
from connectors.storage.embedded.runner import opened
from connectors.storage.embedded.store import SqliteStore
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.mechanisms.changes import mechanism
from stream.mechanisms.changes.noise import change_noise
from stream.mechanisms.exact import Ints
from stream.mechanisms.noise_labels import Context
from stream.records import HOUR
from stream.release.validation import load_policy
from stream.schemas import AUDIT
from tests.support.day_policies import change_release, shared, visit_site
from tests.support.small_building import EVENING, messages, people, policy_text

RELEASE = change_release(public="2", board="4", more=shared(zone="0.5", building="0.5") + 'revise = ["1d"]\n')
POLICY = load_policy(policy_text(RELEASE, tick="30min", site=visit_site(day_starts="10:00")))
ITEMS = [*messages(people(hours=5, devices=8, start=EVENING + 12 * HOUR), POLICY, after=HOUR)]
"""From 8:00 to 14:00, with two privacy days."""
LOG = [encode_message(each) for each in ITEMS]
FURTHEST = 4
"""Messages before a crash at which a snapshot may have been made, at most."""


class Drawn(NamedTuple):
    """What was drawn for one window of a level."""

    digest: bytes
    """Of the sums."""
    noise: tuple[tuple[Fraction, tuple[int, ...]], ...]
    """By audience: variance, and a value for each node."""


class Draws:
    """All draws of noise on changes so far."""

    def __init__(self) -> None:
        self.found: defaultdict[Context, list[Drawn]] = defaultdict(list)

    def __call__(
        self, key: bytes, context: Context, digest: bytes, variances: Sequence[Fraction], n: int
    ) -> dict[Fraction, Ints]:
        noise = change_noise(key, context, digest, variances, n)
        values = tuple((law, tuple(map(int, values))) for law, values in sorted(noise.items()))
        self.found[context].append(Drawn(digest, values))
        return noise

    @property
    def repeated(self) -> int:
        """How many draws were made again."""
        return sum(len(each) - 1 for each in self.found.values())

    def check(self) -> None:
        """Raise AssertionError if two draws for one window and level differ."""
        for each in self.found.values():
            assert len(set(each)) == 1, "other noise was drawn for the same window and level"


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Draws:
    found = Draws()
    monkeypatch.setattr(mechanism, "change_noise", found)
    return found


@pytest.fixture
def key(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=True)
    return tmp_path / "key"


Topics = dict[str, dict[str, bytes]]
"""Topic -> id of a record -> its bytes."""


def straight(key: Path) -> Topics:
    """Return what an undisturbed engine publishes."""
    engine, topics = PartitionEngine(POLICY, key_files.laboratory_keys(key)), Topics()
    for offset, value in enumerate(LOG):
        _publish(topics, engine.process(offset, None, value))
    assert sum(".moves.v1" in topic for topic in topics) == 2
    return topics


def _publish(topics: Topics, outputs: Sequence[Any]) -> None:
    for output in outputs:
        known = topics.setdefault(output.topic, {})
        assert known.setdefault(output.id, output.value) == output.value, "a record has other bytes"


# ---- the engine ---------------------------------------------------------------------------------------------


def test_an_engine_that_goes_on_from_any_snapshot_draws_the_same_noise(draws: Draws, key: Path) -> None:
    expected, rng = straight(key), random.Random(1)
    keys, topics, audit = key_files.laboratory_keys(key), Topics(), list[bytes]()
    engine, snapshots = PartitionEngine(POLICY, keys), list[bytes]()
    for crash in range(len(LOG)):
        snapshots.append(engine.snapshot(crash, len(audit)))
        outputs = engine.process(crash, None, LOG[crash])
        _publish(topics, outputs)
        audit += [output.value for output in outputs if output.topic == AUDIT]
        back = rng.randrange(max(0, crash - FURTHEST), crash + 1)
        engine = PartitionEngine(POLICY, keys)
        engine.restore(snapshots[back])
        engine.expect_replay(audit[engine.audit_offset() :])
        for offset in range(back, crash + 1):
            _publish(topics, engine.process(offset, None, LOG[offset]))
    assert topics == expected
    draws.check()
    assert draws.repeated > len(draws.found)


# ---- the embedded runner ------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


class Killer:
    """Ends the process before or after a durable step, at each of them once or at some that are drawn."""

    steps = ((SqliteStore, "append"), (SqliteStore, "commit"), (MarkFile, "advance"), (SqliteStore, "deliver"))

    def __init__(self, patch: pytest.MonkeyPatch, share: float) -> None:
        self.kills, self.at = 0, 0
        self._rng, self._share, self._seen = random.Random(2), share, set[tuple[int, str, str]]()
        for owner, name in self.steps:
            patch.setattr(owner, name, self._wrapped(getattr(owner, name), name))

    def _wrapped(self, step: Callable[..., Any], name: str) -> Callable[..., Any]:
        def done(*given: Any, **named: Any) -> Any:
            self._kill("before", name)
            result = step(*given, **named)
            if name == "append":
                self.at += 1
            self._kill("after", name)
            return result

        return done

    def _kill(self, when: str, name: str) -> None:
        point = (self.at, when, name)
        if point not in self._seen:
            self._seen.add(point)
            if self._rng.random() < self._share:
                self.kills += 1
                raise Killed


@pytest.mark.parametrize("share", [0.15, pytest.param(1.0, marks=pytest.mark.long)])
def test_an_embedded_runner_that_is_killed_at_its_durable_steps_draws_the_same_noise(
    share: float, draws: Draws, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = straight(key)
    with monkeypatch.context() as patch:
        killer, ended = Killer(patch, share), False
        while not ended:
            try:
                with opened(POLICY, key, tmp_path / "store") as (runner, _):
                    while killer.at < len(ITEMS):
                        runner.process(ITEMS[killer.at])
                ended = True
            except Killed:
                pass
    assert killer.kills > 10
    assert list(read_topic(tmp_path / "store", AUDIT)) == list(expected[AUDIT].values())
    for audience in ("public", "board"):
        private = [
            value for topic in expected if f".private.{audience}." in topic for value in expected[topic].values()
        ]
        assert sorted(value for _, value in read_outbox(tmp_path / "store", audience, 0)) == sorted(private)
    draws.check()
    assert draws.repeated > len(draws.found)


# ---- what must be found -------------------------------------------------------------------------------------


def test_noise_that_a_crash_draws_anew_is_found(draws: Draws) -> None:
    rng = np.random.default_rng(1)
    context = Context("dbh", "moves", 0, 1, ("a",))
    for _ in range(2):
        draws(rng.bytes(32), context, b"sums", (Fraction(10**10),), 1)
    with pytest.raises(AssertionError, match="other noise"):
        draws.check()
