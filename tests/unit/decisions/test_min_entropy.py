"""Min-entropy of a predicate-wise private answer: exact where it can be, never above the truth elsewhere."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from stream.decisions.beliefs import Beliefs, beliefs, term
from stream.decisions.entropy_bounds import TOLERANCE, Node, Relaxation, straight_lines
from stream.decisions.entropy_search import least_by_halves, least_entropy
from stream.decisions.min_entropy import min_entropy as asked
from stream.decisions.min_entropy import minimum_entropy
from stream.errors import UsageError
from tests.acceptance.command_line import run


def by_enumeration(epsilons: Sequence[float], priors: Sequence[float] | None = None) -> float:
    """Walk through all vertices of the box of Lemma A.1 cut with Σ p = 1."""
    q = [1.0] * len(epsilons) if priors is None else priors
    up = math.fsum(a * math.exp(e) for a, e in zip(q, epsilons, strict=True))
    down = math.fsum(a * math.exp(-e) for a, e in zip(q, epsilons, strict=True))
    box = [(a * math.exp(-e) / up, a * math.exp(e) / down) for a, e in zip(q, epsilons, strict=True)]
    ends = [[(p, -p * math.log(p)) for p in pair] for pair in box]
    best = math.inf
    for between, (low, high) in enumerate(box):
        for chosen in product(*ends[:between], *ends[between + 1 :]):
            p = 1 - sum(each[0] for each in chosen)
            if low - 1e-13 <= p <= high + 1e-13:
                best = min(best, sum(each[1] for each in chosen) - p * math.log(p))
    return best


def drawn(seed: int, k: int) -> tuple[list[float], list[float] | None]:
    """Draw epsilons and, half of the time, priors.

    Epsilons are of many sizes, so that one large one decides, or, for every third seed, alike: many decide together.
    """
    random_ = random.Random(seed)
    epsilons = [random_.choice([random_.uniform(0, 3), 10 ** random_.uniform(-5, 1)]) for _ in range(k)]
    if seed % 3 == 0:
        epsilons = [random_.uniform(0.1, 1.5) for _ in range(k)]
    return epsilons, [random_.uniform(0.01, 1) for _ in range(k)] if random_.random() < 0.5 else None


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_least_entropy_of_all_vertices(seed: int) -> None:
    epsilons, priors = drawn(seed, 2 + seed % 7)
    found = minimum_entropy(epsilons, priors)
    assert found.exact
    assert found.lower == pytest.approx(by_enumeration(epsilons, priors), abs=1e-11)


def test_it_is_the_least_entropy_of_all_vertices_of_fourteen_predicates() -> None:
    epsilons, priors = drawn(5, 14)
    assert minimum_entropy(epsilons, priors).lower == pytest.approx(by_enumeration(epsilons, priors), abs=1e-11)


@pytest.mark.parametrize("seed", range(20))
def test_both_ways_of_searching_find_the_same(seed: int) -> None:
    epsilons, priors = drawn(100 + seed, 12)
    allowed = beliefs(epsilons, priors)
    searched = least_entropy(allowed, 10**6)
    assert searched.lower == searched.upper
    assert least_by_halves(allowed, math.log(12)) == pytest.approx(searched.upper, abs=1e-11)


@pytest.mark.parametrize(
    ("epsilons", "nats"),
    [((0.27318461, 0.00743109, 0.09119796), 1.067814), ((1.68330306, 0.00136367), 0.430497)],
)
def test_widest_intervals_first_is_no_way_to_it(epsilons: tuple[float, ...], nats: float) -> None:
    """That way gives 1.072516 and 0.433671: too much entropy, so too little loss."""
    assert minimum_entropy(epsilons).lower == pytest.approx(nats, abs=5e-7)


def test_equal_predicates_are_counted_and_the_thesis_divides_by_the_logarithm_of_their_number() -> None:
    found = minimum_entropy([math.log(10)] * 420)
    assert found.exact
    assert found.lower == pytest.approx(1.5956, abs=5e-5)
    assert found.normalised == pytest.approx(0.264, abs=5e-4)


@pytest.mark.parametrize(
    "epsilons",
    [
        pytest.param([1e-3 * i for i in range(1, 26)], id="subset-sums"),
        pytest.param([1 + 1e-6 * i for i in range(25)], id="all-but-equal"),
        pytest.param([0.1 * i for i in range(1, 26)], id="a-ladder"),
    ],
)
def test_25_different_predicates_are_exact_however_near_they_are(epsilons: list[float]) -> None:
    assert minimum_entropy(epsilons).exact


@pytest.mark.parametrize("seed", range(10))
def test_where_it_is_not_exact_the_truth_lies_within_the_bracket_and_the_lower_end_is_reported(seed: int) -> None:
    random_ = random.Random(seed)
    levels = [10 ** random_.uniform(-2, 0.6) for _ in range(4)]
    epsilons = [random_.choice(levels) for _ in range(60)]
    truth = least_entropy(beliefs(epsilons), 10**5)
    assert truth.lower == truth.upper
    brief = minimum_entropy(epsilons, most_nodes=0)
    assert not brief.exact
    assert brief.lower <= truth.lower + 1e-12
    assert brief.upper >= truth.upper - 1e-12
    assert brief.normalised == brief.lower / math.log(60)


@pytest.mark.parametrize(
    ("epsilons", "nodes"),
    [
        pytest.param([1 + 1e-3 * (i % 5) for i in range(60)], 50, id="almost-equal"),
        pytest.param([0.1 * (1 + i % 8) for i in range(40)], 120, id="a-ladder"),
    ],
)
def test_many_predicates_on_few_levels_are_exact_after_few_nodes(epsilons: list[float], nodes: int) -> None:
    assert minimum_entropy(epsilons, most_nodes=nodes).exact


def test_more_than_25_predicates_that_are_too_near_stay_in_a_bracket() -> None:
    assert not minimum_entropy([1e-3 * (1 + i % 13) for i in range(26)]).exact


def test_more_than_25_levels_are_bounded_by_straight_lines_alone() -> None:
    epsilons = [0.1 + 0.01 * i for i in range(26)]
    found, lines = minimum_entropy(epsilons), straight_lines(beliefs(epsilons))
    assert (found.lower, found.upper) == lines
    assert not found.exact


def random_node(draw: random.Random, allowed: Beliefs) -> tuple[Node, list[tuple[int, ...]]]:
    """Return a set of vertices, and for each of them how many of each group are at their upper ends."""
    between = draw.randrange(len(allowed.intervals))
    vertex = [draw.randint(0, group.predicates - (i == between)) for i, group in enumerate(allowed.intervals)]
    least = tuple(draw.randint(0, n) for n in vertex)
    most = tuple(
        draw.randint(n, group.predicates - (i == between))
        for i, (n, group) in enumerate(zip(vertex, allowed.intervals, strict=True))
    )
    few, many = draw.randint(0, sum(vertex)), draw.randint(sum(vertex), sum(most))
    ranges = [range(low, high + 1) for low, high in zip(least, most, strict=True)]
    return Node(between, least, most, few, many), [v for v in product(*ranges) if few <= sum(v) <= many]


@pytest.mark.parametrize("seed", range(40))
def test_a_node_is_bounded_by_the_vertices_in_it(seed: int) -> None:
    draw = random.Random(seed)
    levels = [draw.uniform(0, 2) for _ in range(3)]
    allowed = beliefs([draw.choice(levels) for _ in range(9)])
    node, vertices = random_node(draw, allowed)
    bounds, between = Relaxation(allowed), allowed.intervals[node.between]

    def total(vertex: Sequence[int], each: Sequence[float]) -> float:
        return sum(n * one for n, one in zip(vertex, each, strict=True))

    widths, rises = [group.width for group in allowed.intervals], [group.rise for group in allowed.intervals]
    left = [allowed.slack - total(vertex, widths) for vertex in vertices]
    low, high = max(0.0, min(left)), min(between.width, max(left))
    assert bounds.amounts(node) == (None if low > high + TOLERANCE else pytest.approx((low, high)))
    least = math.inf
    for vertex, rest in zip(vertices, left, strict=True):
        if -TOLERANCE <= rest <= between.width + TOLERANCE:
            amount = min(max(0.0, rest), between.width)
            least = min(least, total(vertex, rises) + term(between.low + amount) - term(between.low))
    assert bounds.bound(node, math.inf).lower <= least + TOLERANCE
    for slope in (-1.0, 0.0, 0.7, 3.0):
        keys = [rise - slope * width for rise, width in zip(rises, widths, strict=True)]
        found = bounds.choose(node, slope).numbers
        assert found in vertices
        assert total(found, keys) == pytest.approx(min(total(vertex, keys) for vertex in vertices))


def test_of_two_predicates_each_has_what_the_other_leaves() -> None:
    """Odds of e at most, in either direction."""
    for each in beliefs([1.0, 0.0]).intervals:
        assert (each.low, each.low + each.width) == pytest.approx((1 / (1 + math.e), math.e / (1 + math.e)))


def test_ten_thousand_predicates_on_twelve_levels_are_bracketed_to_a_thousandth() -> None:
    """In .2 s of processor; the search ends after its 1500 nodes."""
    random_ = random.Random(3)
    levels = [10 ** random_.uniform(-5, 0.6) for _ in range(12)]
    found = minimum_entropy([random_.choice(levels) for _ in range(10_000)])
    assert found.upper - found.lower < 1e-3 * found.lower


def test_no_cost_leaves_everything_unknown_and_more_cost_leaves_less() -> None:
    assert minimum_entropy([0.0] * 8).lower == pytest.approx(math.log(8))
    assert minimum_entropy([0.0] * 8).normalised == pytest.approx(1)
    found = [minimum_entropy([e] * 8).lower for e in (0.0, 0.1, 1.0, 5.0, 50.0, 800.0)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(0, abs=1e-12)


def test_priors_count_up_to_a_factor_and_a_predicate_that_cannot_be_counts_nothing() -> None:
    epsilons, priors = [0.1, 0.5, 1.0], [0.2, 0.3, 0.5]
    assert minimum_entropy(epsilons, [7 * q for q in priors]).lower == pytest.approx(
        minimum_entropy(epsilons, priors).lower
    )
    assert minimum_entropy([*epsilons, 2.0], [*priors, 0.0]).lower == minimum_entropy(epsilons, priors).lower
    assert minimum_entropy([0.7]).lower == minimum_entropy([0.7]).normalised == 0


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"epsilons": []}, "epsilons must not be empty"),
        ({"epsilons": [1, -1]}, r"epsilons\[1\] must lie in \[0"),
        ({"epsilons": [1, 1], "priors": [0, 0]}, "priors must not all be 0"),
        ({"epsilons": [1, 1], "priors": [1]}, "priors must have 2 entries"),
        ({"epsilons": "1"}, "epsilons must be a list"),
    ],
)
def test_a_malformed_question_is_refused_by_the_entry(model: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked(**model)


def test_the_command_answers_with_these_fields() -> None:
    done = run("leakage", "min-entropy", "-", "--json", given=json.dumps({"epsilons": [0.27318461, 0.00743109, 0.09]}))
    assert done.code == 0, done.problem
    answer = json.loads(done.out)
    assert list(answer) == ["min_entropy", "normalised", "lower", "upper", "exact"]
    assert answer["exact"] is True
    assert answer["min_entropy"] == answer["lower"] == answer["upper"]
    assert run("leakage", "min-entropy", "-", given='{"epsilons": [1], "prior": [1]}').code == 2
