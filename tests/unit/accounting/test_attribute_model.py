"""A declared model of a day: classes, what may be shown, agreement with the rules of two classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from stream.accounting.attribute_leakage import DayModel, class_sensitivity, day_model, queried_attributes
from stream.accounting.leakage.guard import (
    log_outcome_factors,
    may_query,
    no_evidence,
    pattern_factors,
    permitted,
    value_rows,
)
from stream.policy.attributes import AttributeRelease

PAIR = {"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "arrival": {"epsilon": {"a": "1"}, "sensitive": {"after": "10:00"}},
    "occupancy_level": {"epsilon": {"a": "0.5"}, "sensitive": {"below": 0.3}},
}


def release(joint: dict[str, float] = PAIR, *, cuts: dict[str, Any] | None = None, **more: Any) -> AttributeRelease:
    model = {"joint": joint} | ({"cuts": cuts} if cuts else {})
    body = {"name": "day", "query": "attributes", "attributes": ATTRIBUTES, "model": model}
    return AttributeRelease.model_validate(body | more)


def model_of(given: AttributeRelease) -> DayModel:
    """The model of a release that has one."""
    found = day_model(given)
    assert found is not None
    return found


def one(name: str, sensitive: dict[str, Any], cuts: list[Any], joint: Any = None) -> AttributeRelease:
    patterns = joint or {str(digit): 1 / (len(cuts) + 1) for digit in range(len(cuts) + 1)}
    attributes = {name: {"epsilon": {"a": "1"}, "sensitive": sensitive}}
    return release(patterns, cuts={name: cuts}, attributes=attributes)


@pytest.mark.parametrize(
    ("name", "sensitive", "cuts", "classes"),
    [
        ("arrival", {"after": "10:00"}, ["10:01"], {"00:00": 0, "10:00": 0, "10:01": 1, "23:59": 1}),
        ("arrival", {"before": "07:00", "after": "10:00"}, ["07:00", "10:01"], {"06:59": 0, "07:00": 1, "10:01": 2}),
        ("departure", {"after": "09:59"}, ["08:00", "10:00"], {"07:59": 0, "08:00": 1, "09:59": 1, "10:00": 2}),
        ("breaks", {"above": 2}, [1, 3], {0: 0, 1: 1, 2: 1, 3: 2, 9: 2}),
        ("breaks", {"above": 2.5}, [3], {2: 0, 3: 1}),
        ("breaks", {"below": 2}, [2], {0: 0, 1: 0, 2: 1}),
        ("occupancy_level", {"below": 0.3}, [0.3, 0.8], {0.2999: 0, 0.3: 1, 0.8: 2, 1.0: 2}),
        ("occupancy_level", {"above": 0.57}, [0.5701], {0.57: 0, 0.5701: 1}),
        ("occupancy_level", {"above": 0.30005}, [0.3001], {0.3: 0, 0.3001: 1}),
    ],
)
def test_every_value_of_a_class_is_sensitive_or_none_is(
    name: Any, sensitive: dict[str, Any], cuts: list[Any], classes: dict[Any, Any]
) -> None:
    made = one(name, sensitive, cuts)
    model = model_of(made)
    rule = made.attributes[name].sensitive
    for value, number in classes.items():
        assert model.class_of(0, value) == number
        assert bool(model.sensitive[0][number]) == rule.holds(value)
    assert class_sensitivity(made, name, model.cuts[0]) == model.sensitive[0].tolist()


def test_no_cut_is_needed_where_no_value_is_sensitive() -> None:
    assert one("departure", {"after": "24:00"}, ["12:00"]).model is not None


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"cuts": {"arrival": ["09:00"]}, "joint": {"00": 0.5, "11": 0.5}}, "add the cut '10:01'"),
        ({"cuts": {"occupancy_level": [0.5]}, "joint": {"00": 0.5, "11": 0.5}}, "add the cut 0.3"),
        ({"cuts": {"arrival": ["10:01", "08:00"]}}, "must ascend"),
        ({"cuts": {"arrival": ["10:01", "10:01"]}}, "must ascend"),
        ({"cuts": {"arrival": ["9:00", "10:01"]}}, "must be a time HH:MM, got '9:00'"),
        ({"cuts": {"arrival": [9.0]}}, "one to nine times HH:MM"),
        ({"cuts": {"occupancy_level": ["10:01"]}}, "one to nine numbers"),
        ({"cuts": {"occupancy_level": [0.3, math.nan]}}, "must be finite, got nan"),
        ({"cuts": {"occupancy_level": [n / 10 for n in range(10)]}}, "one to nine numbers"),
        ({"cuts": {"breaks": [3]}}, "of an attribute in it"),
        ({"joint": {"0": 1.0}}, "a pattern must give each of arrival, occupancy_level one of its classes, got '0'"),
        ({"joint": {"02": 1.0}}, "one of its classes, got '02'"),
        ({"joint": {"00": 0.5, "11": 0.4}}, "must add up to 1, got 0.9"),
        ({"joint": {"00": math.inf}}, "must add up to 1"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_key_and_rule(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError) as refused:
        release(**change)
    assert rule in str(refused.value)
    assert "model." in str(refused.value)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"cap": math.inf}, "cap"),
        ({"cap": 0}, "cap"),
        ({"information_target": math.nan}, "information_target"),
        ({"days_per_month": 0}, "days_per_month"),
        ({"model": None, "cap": 1.0}, "need a model"),
        ({"model": None, "guard": "adaptive"}, "need a model"),
        ({"guard": "adaptive"}, "needs a cap"),
        ({"cuts": {"arrival": ["10:01"]}, "absent": "public"}, "absent = 'sensitive'"),
    ],
)
def test_cap_guard_and_limits_that_cannot_be_kept_are_refused(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError) as refused:
        release(**change)
    assert rule in str(refused.value)


def test_an_adaptive_guard_serves_one_audience_only() -> None:
    two = {name: rule | {"epsilon": {"a": "1", "b": "1"}} for name, rule in ATTRIBUTES.items()}
    with pytest.raises(ValidationError, match="one audience"):
        release(attributes=two, cap=1.0, guard="adaptive")


def test_probabilities_that_miss_one_by_their_decimals_are_taken_as_shares() -> None:
    third = {"00": 0.333333, "01": 0.333333, "11": 0.333334}
    assert model_of(release(third)).joint.sum() == pytest.approx(1, abs=1e-15)


def test_classes_are_added_up_to_sensitive_and_not() -> None:
    joint = {"00": 0.05, "01": 0.25, "10": 0.20, "11": 0.20, "20": 0.25, "21": 0.05}
    model = model_of(release(joint, cuts={"arrival": ["08:00", "10:01"]}))
    assert model.binary == pytest.approx(np.array([[0.25, 0.05], [0.25, 0.45]]))


def test_a_model_of_two_classes_obeys_the_rules_of_patterns_and_guard(seeded: Any) -> None:
    rng = seeded(5)
    for _ in range(200):
        joint = rng.dirichlet(np.ones(4)).reshape(2, 2)
        e, cap = rng.uniform(0.05, 2.0, 2), float(rng.uniform(0.05, 3.0))
        model = model_of(release({f"{a}{b}": joint[a, b] for a, b in np.ndindex(2, 2)}))
        epsilon = dict(zip(model.order, map(float, e), strict=True))
        ones = np.ones(2, dtype=np.int64)
        found = [model.worst(epsilon)[name] for name in model.order]
        assert found == pytest.approx(pattern_factors(joint, e, ones).reshape(2, -1).max(axis=1), rel=1e-9)
        wanted = {model.order[i] for i in permitted(joint, e, ones, cap)}
        assert model.permitted(epsilon, cap) == wanted
        for shown in (0, 1):
            seen = {"arrival": "09:00" if shown else None}
            asks = may_query(joint, e, np.array([1, 0]), np.array([shown, 0]), attribute=1, cap=cap)
            assert model.may_query("occupancy_level", epsilon, seen, cap) == asks


def test_outcomes_of_shown_classes_agree_with_enumeration(seeded: Any) -> None:
    """Bayes' rule over every pattern, on random models of up to four classes and three attributes."""
    rng = seeded(6)
    for _ in range(40):
        sizes = rng.integers(2, 5, 3)
        joint = rng.dirichlet(np.ones(int(sizes.prod()))).reshape(sizes)
        masks = [rng.permutation(np.arange(n) < rng.integers(1, n)) for n in sizes]
        e = rng.uniform(0.1, 2.0, 3)
        rows = [value_rows(mask, float(x)) for mask, x in zip(masks, e, strict=True)]
        rows[1] = no_evidence(masks[1]) if rng.random() < 0.3 else rows[1]
        table = log_outcome_factors(joint, rows, masks)
        for outcome in np.ndindex(*[len(row) for row in rows]):
            weight = joint * np.multiply.outer(np.multiply.outer(*[np.exp(rows[a][outcome[a]]) for a in (0, 1)]),
                                               np.exp(rows[2][outcome[2]]))  # fmt: skip
            for j, mask in enumerate(masks):
                before = np.moveaxis(joint, j, 0)
                after = np.moveaxis(weight, j, 0)
                expected = (after[mask].sum() / after[~mask].sum()) / (before[mask].sum() / before[~mask].sum())
                assert math.exp(table[(j, *outcome)]) == pytest.approx(expected, rel=1e-11, abs=1e-300)


def test_outcomes_of_an_attribute_have_probabilities_that_add_up_to_one() -> None:
    rows = np.exp(value_rows(np.array([True, False, False, True]), 0.7))
    assert rows.sum(axis=0) == pytest.approx([1, 1, 1, 1], abs=1e-15)
    assert rows[0] == pytest.approx([1, math.exp(-0.7), math.exp(-0.7), 1])


def test_a_static_guard_keeps_the_first_attributes_that_fit() -> None:
    assert queried_attributes(release(cap=1.05), model_of(release())) == {"arrival"}
    assert queried_attributes(release(cap=0.1), model_of(release())) == set()
    assert queried_attributes(release(cap=3.0), model_of(release())) == {"arrival", "occupancy_level"}
    assert queried_attributes(release(cap=0.1, guard="adaptive"), model_of(release())) == {"arrival", "occupancy_level"}


def test_a_model_tells_which_class_proves_which_attribute_sensitive() -> None:
    assert model_of(release()).proves() is None
    assert model_of(release({"00": 0.4, "01": 0.3, "10": 0.3})).proves() == ("arrival", 1, "occupancy_level")


def test_information_of_the_worked_example() -> None:
    bits = model_of(release()).information_bits({"arrival": 1.0, "occupancy_level": 0.5})
    assert bits["arrival"] == pytest.approx(0.335817322444 / math.log(2), abs=1e-11)
    assert bits["occupancy_level"] == pytest.approx(0.161786685061 / math.log(2), abs=1e-11)
