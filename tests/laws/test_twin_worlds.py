"""Two worlds that differ in one device: nothing but released values may differ in what others see.

Random courses (policies that change in any key, restarts, takeovers, crashes, losses, backfills, silent connectors and
sources) are gone through twice, with and without one device. Noise is coupled, so that released values are equal
(``tests/support/coupled_noise.py``). Then everything that others see has to be equal: which records there are, their
order, ids, times and sizes, denials, charges, audit entries, accounts, errors. What may depend on people stands in
``BY_DESIGN``. All is drawn from the seed and no test compares frequencies, so none can alarm falsely; that faults which
are put in are found shows that the courses are wild enough.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.sources.ingest.ingest import Ingest
from stream.policy.document import audiences_of
from stream.records import WAITING
from stream.release.budgets import BudgetDecision, Budgets
from stream.sensing import state as sense_state
from stream.sensing.contribution import migrated_counter
from stream.sensing.occupancy import OccupancyOperator
from tests.support.policy_edits import (
    EDITS,
    RELEASES,
    TRIES,
    InapplicableError,
    edited,
    parsed,
    policy_keys,
    whole_document,
)
from tests.support.twin_worlds import History, What, first_difference, twins

MANY = range(100, 300)
SEARCHED = range(60)
"""Seeds of which one finds each fault that is put in. A new policy key changes what each seed draws."""


COUNTED: dict[str, Sequence[What]] = {
    "devices": (),
    "sessions": ("sessions",),
    "changes": ("changes",),
    "changes of sessions": ("changes", "sessions"),
    "changes of logins": ("changes", "logins", "sessions"),
    "people": ("people",),
    "people of changes": ("people", "changes", "sessions"),
}
"""What the sites of the first policy count."""
FEW = [("devices", 2), ("sessions", 2), ("changes of logins", 2), ("people of changes", 2)]
MORE = [
    ("devices", 6), ("devices", 10), ("devices", 12), ("sessions", 12), ("changes", 6), ("changes of sessions", 6),
    ("people", 2), ("people of changes", 6),
]  # fmt: skip
"""Left to the night; what each of them counts, one of the few counts beside something else."""


@pytest.mark.parametrize(("what", "seed"), [*FEW, *(pytest.param(*each, marks=pytest.mark.long) for each in MORE)])
def test_two_worlds_that_differ_in_one_device_show_the_same(what: str, seed: int) -> None:
    assert (difference := first_difference(*drawn_twins(seed, COUNTED[what]))) is None, difference


@cache
def drawn_twins(seed: int, having: Sequence[What]) -> tuple[History, History]:
    """Return two worlds at the end of their course, made once per process."""
    return twins(seed, having=having)


@pytest.mark.long
@pytest.mark.parametrize("seed", MANY)
@pytest.mark.parametrize("what", COUNTED)
def test_many_worlds_that_differ_in_one_device_show_the_same(what: str, seed: int) -> None:
    assert (difference := first_difference(*twins(seed, having=COUNTED[what]))) is None, difference


# ---- that the comparison means something ----------------------------------------------------------------


def test_worlds_release_deny_and_wait_and_their_true_counts_differ() -> None:
    """A new policy key changes what each seed draws, so one of them is enough; 2 is a short one."""
    assert any(map(_tells_worlds_apart, (2, *SEARCHED)))


def _tells_worlds_apart(seed: int) -> bool:
    """Whether two worlds have every outcome, and windows that were made of other counts."""
    one, other = drawn_twins(seed, COUNTED["devices"])
    outcomes = Counter(entry["outcome"] for entry in one.audit())
    differing = sum(mine != others for mine, others in zip(one.commitments, other.commitments, strict=True))
    return differing > 10 and min(outcomes[reason] for reason in ("released", "budget", "w_budget", "waiting")) > 10


def resuming_at_the_latest_observation(patch: pytest.MonkeyPatch) -> None:
    """Counting under another privacy day begins behind the latest observation held."""

    def decode(self: OccupancyOperator, data: bytes) -> Any:
        state = sense_state.decode(data, self.places)
        times = [time for _, time in state.current.values()]
        times += [entry[0] for waiting in state.pending.values() for entry in waiting.entries.values()]
        state.tally = migrated_counter(state.tally, self.by_day, max(times, default=None))
        state.update_known_devices()
        return state

    patch.setattr(OccupancyOperator, "decode", decode)


def denying_empty_windows(patch: pytest.MonkeyPatch) -> None:
    """A window without anybody is not charged."""
    decisions = Budgets.decide

    def judged(self: Budgets, state: Any, plan: Any, window: Any, key_day: int) -> Any:
        if not any(window.counts):
            return dict.fromkeys(audiences_of(plan.release), BudgetDecision(WAITING))
        return decisions(self, state, plan, window, key_day)

    patch.setattr(Budgets, "decide", judged)


def vouching_by_traps(patch: pytest.MonkeyPatch) -> None:
    """A window in which nobody was heard has no coverage."""
    close = OccupancyOperator._close

    def closed(self: OccupancyOperator, state: Any, tick: int) -> Any:
        received = tick in state.pending
        window = close(self, state, tick)
        return window if received else replace(window, coverage=Fraction(0))

    patch.setattr(OccupancyOperator, "_close", closed)


def beating_when_heard(patch: pytest.MonkeyPatch) -> None:
    """A connector that hears nobody sends no heartbeat."""
    beat = Ingest._beat

    def beaten(self: Ingest, state: Any, pairs: Any, watermark: int) -> None:
        beat(self, state, tuple(pair for pair in pairs if any(state.devices.values())), watermark)

    patch.setattr(Ingest, "_beat", beaten)


@pytest.mark.parametrize(
    ("fault", "finds"),
    [
        (resuming_at_the_latest_observation, 6), (denying_empty_windows, 0), (vouching_by_traps, 2),
        (beating_when_heard, 0),
    ],
)  # fmt: skip
def test_a_fault_that_lets_people_decide_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], finds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed that ``finds`` it is tried first, so that a search takes long only when seeds draw something else."""
    fault(monkeypatch)
    assert any(first_difference(*twins(seed)) is not None for seed in (finds, *SEARCHED))


# ---- the policies that are drawn ------------------------------------------------------------------------


def test_every_key_of_the_policy_is_edited() -> None:
    """Who adds a key to the policy says in ``EDITS`` how it changes."""
    assert policy_keys() == EDITS.keys()


@pytest.mark.parametrize("key", sorted(EDITS))
def test_the_edits_of_a_key_give_another_policy(key: str) -> None:
    document = whole_document(by_day=key not in ("Policy.pseudonym", "Pseudonyms.ttl"))
    before = parsed(document)
    for seed in range(3):
        rng = random.Random(seed)
        assert any(parsed(made) != before for made in attempts(rng, document, key))


def attempts(rng: random.Random, document: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """Yield the edits of a key that keep the form of a policy; not all of them keep its guarantees."""
    for _ in range(TRIES):
        made = copy.deepcopy(document)
        with suppress(InapplicableError, ValidationError):
            rng.choice(EDITS[key])(rng, made)
            parsed(made)
            yield made


def test_an_edit_that_has_nothing_to_change_is_refused() -> None:
    document = whole_document()
    document["release"] = [copy.deepcopy(RELEASES["plain"])]
    with pytest.raises(InapplicableError):
        edited(random.Random(1), document, ["AttributeRelease.cap"])
