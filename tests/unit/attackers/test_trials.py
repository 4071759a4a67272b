"""Trials of guarantees: what is chosen before it is measured, and how many releases share the level."""

from __future__ import annotations

import numpy as np

from connectors.lab.attacks.membership import SCORES, Guarantee, Scores, _trial, attacked_guarantees
from stream.lab.attackers.membership import LEVEL
from stream.release.validation import load_policy
from tests.support.small_building import SITE, policy_text

RELEASE = """
[[release]]
name = "{name}"
query = "count"
mechanism = "laplace"
zones = {{ kind = "hall" }}
epsilon = {{ public = "1" }}
"""
GUARANTEE = Guarantee("plain", "public", "window", 1.0, 0.0)


def scores(likelihoods: list[float]) -> Scores:
    """Return scores of runs whose likelihood ratios are these with the canary, and their opposites without it."""
    there = np.array([(ratio, 1.0) for ratio in likelihoods])
    return Scores(SCORES, there, there * (-1.0, 1.0))


def test_the_score_is_chosen_without_the_runs_that_are_measured() -> None:
    trials = [_trial(GUARANTEE, scores([*([1.0] * 20), *([ratio] * 20)]), LEVEL) for ratio in (1.0, 0.0)]
    assert [trial.score for trial in trials] == ["likelihood", "likelihood"]
    assert [trial.largest_ratio for trial in trials] == [1.0, 0.0]


def test_ratios_that_are_not_known_are_no_score() -> None:
    trial = _trial(GUARANTEE, scores([0.0] * 40), LEVEL)
    assert (trial.score, trial.largest_ratio) == ("values", None)


def test_only_releases_that_are_tried_share_the_level() -> None:
    tried = load_policy(policy_text(RELEASE.format(name="plain")))
    more = load_policy(policy_text(RELEASE.format(name="plain") + RELEASE.format(name="other")))
    assert list(attacked_guarantees(tried, more, SITE)) == [("plain", "public")]
