"""Adversaries with knowledge that the policy declares."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from stream.accounting.adversaries import Knowledge
from stream.errors import UsageError
from stream.policy.privacy import Privacy

STAY = [[0.95, 0.05], [0.05, 0.95]]
PRESENCE = [[0.995, 0.005], [0.05, 0.95]]


def knowledge(forward: list[list[float]] | None = None, meetings: Sequence[tuple[int, float, float]] = ()) -> Knowledge:
    privacy = {"mobility": {"forward": forward}} if forward else {}
    reported = [dict(zip(("size", "correlation", "presence"), meeting, strict=True)) for meeting in meetings]
    return Knowledge.of(Privacy.model_validate(privacy | {"meetings": reported}))


@pytest.mark.parametrize(
    ("forward", "epsilon", "supremum"),
    [
        (STAY, 0.1, 1.6917), (STAY, 1, 5.9766), ([[0.5, 0.5], [0.5, 0.5]], 0.1, 0.1),
        ([[0.99, 0.01], [0.01, 0.99]], 0.1, 4.6060), (PRESENCE, 0.5, 8.979), (PRESENCE, 1, 10.52),
    ],
)  # fmt: skip
def test_temporal_leakage_is_the_supremum_of_the_stationary_chain(
    forward: list[list[float]], epsilon: float, supremum: float
) -> None:
    assert knowledge(forward).temporal(epsilon) == pytest.approx(supremum, rel=2e-4)


def test_temporal_leakage_of_one_who_never_leaves_has_no_end() -> None:
    large, small = (knowledge([[0.9, 0.1], [1.0, 0.0]]).temporal(epsilon) for epsilon in (3.0, 0.01))
    assert large is not None
    assert math.isinf(large)
    assert small is not None
    assert math.isfinite(small)


@pytest.mark.parametrize(
    ("meeting", "epsilon", "leakage"),
    [
        ((5, 0.5, 0.3), 0.5, 1.535885), ((5, 0.9, 0.3), 0.5, 2.311184),
        ((10, 0.5, 0.3), 0.1, 0.554260), ((20, 0.8, 0.5), 0.1, 1.619544), ((10, 1.0, 0.4), 0.1, 1.0),
    ],
)  # fmt: skip
def test_a_meeting_leaks_about_each_of_its_members(
    meeting: tuple[int, float, float], epsilon: float, leakage: float
) -> None:
    assert knowledge(meetings=[meeting]).meeting(epsilon) == pytest.approx(leakage, abs=1e-6)


def test_of_several_meetings_the_one_that_leaks_most_counts() -> None:
    both = [(20, 0.0, 0.5), (5, 0.9, 0.3)]
    assert knowledge(meetings=both).meeting(0.5) == pytest.approx(2.311184, abs=1e-6)
    assert knowledge(meetings=both[::-1]).meeting(0.5) == knowledge(meetings=both).meeting(0.5)


def test_nothing_released_leaks_nothing() -> None:
    assert knowledge(STAY, [(5, 0.5, 0.3)]).temporal(0.0) == 0
    assert knowledge(STAY, [(5, 0.5, 0.3)]).meeting(0.0) == 0


def test_a_policy_that_declares_nothing_has_no_figures() -> None:
    assert knowledge().temporal(1.0) is None
    assert knowledge().meeting(1.0) is None


@pytest.mark.parametrize(
    ("forward", "place"),
    [
        ([[0.9, 0.2], [0.5, 0.5]], "row 0 must have 2 probabilities that add up to 1"),
        ([[1.0], [0.5, 0.5]], "row 0"),
        ([[1.0]], "at least 2"),
        ([[1.5, -0.5], [0.5, 0.5]], "forward.0"),
    ],
)
def test_a_matrix_that_is_none_is_refused_by_row(forward: list[list[float]], place: str) -> None:
    with pytest.raises(ValidationError) as refused:
        knowledge(forward)
    assert place in str(refused.value)


@pytest.mark.parametrize("forward", [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.5, 0.5]]])
def test_a_chain_without_one_past_is_refused_before_anything_runs(forward: list[list[float]]) -> None:
    with pytest.raises(UsageError, match="forward"):
        knowledge(forward)


@pytest.mark.parametrize("meeting", [(1, 0.5, 0.3), (5, 1.1, 0.3), (5, 0.5, 0.0), (5, 0.5, 1.0)])
def test_a_meeting_out_of_range_is_refused(meeting: tuple[int, float, float]) -> None:
    with pytest.raises(ValidationError):
        knowledge(meetings=[meeting])


def test_what_has_no_bound_leaks_without_bound() -> None:
    """A day of gaussian noise has no pure epsilon, whatever people are known to do."""
    knows = knowledge([[0.9, 0.1], [0.1, 0.9]], [(3, 0.5, 0.2)])
    assert (knows.temporal(math.inf), knows.meeting(math.inf)) == (math.inf, math.inf)
    assert (knows.temporal(0.0), knows.meeting(0.0)) == (0.0, 0.0)
