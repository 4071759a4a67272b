from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from stream.errors import DataError, UsageError
from stream.mechanisms.base import TickInput, Values, WeekSlot
from stream.mechanisms.consistency import Tree, downward_pass, gather, site_tree
from stream.mechanisms.exact import Ints
from stream.mechanisms.grouper import Grouper, GroupItem
from stream.mechanisms.hierarchy import CUT, MEASURED, PRUNED, Hierarchy, HierarchyState, Pruning
from stream.mechanisms.noise import chain, discrete_laplace
from stream.mechanisms.noise_labels import Context, counts_digest

F = Fraction
KEY = b"k" * 32
SILENT = F(400)
"""An epsilon whose noise is never seen."""
TREE = site_tree(["a", "b", "c", "d"], ["2", "1", "2", "1"])
"""Zones a, b, c, d; floor 1 = b + d, floor 2 = a + c; the building."""
THIRDS = (F(1, 3),) * 3
UNEQUAL = (F("0.6"), F("0.3"), F("0.1"))
TALL = Tree(
    (("a", "b", "c", "d", "e"), ("p", "q", "r"), ("x", "y"), ("root",)),
    ((0, 0, 1, 1, 2), (0, 0, 1), (0, 0)),
)
PRUNE = Pruning(F("0.1"), 5)
VARIANTS = [("laplace", None), ("laplace", PRUNE), ("pegasus", None), ("pegasus", PRUNE)]
each_variant = pytest.mark.parametrize(("perturber", "pruning"), VARIANTS)


def input_of(window: int, *counts: int) -> TickInput:
    true = np.array(counts, dtype=np.int64)
    context = Context("dbh", "levels", window, 1, ("a", "b", "c", "d"))
    return TickInput(true, np.zeros_like(true), KEY, context, WeekSlot(0, 0, False))


def run(mechanism: Hierarchy, stream: list[list[int]]) -> tuple[list[Values], list[HierarchyState]]:
    """Drive the mechanism, its state through its bytes at every step."""
    data, values, states = mechanism.encode(mechanism.initial()), [], []
    for window, counts in enumerate(stream):
        state, [value] = mechanism.step(mechanism.decode(data), input_of(window, *counts))
        data = mechanism.encode(state)
        values.append(value)
        states.append(state)
    return values, states


def table(ticks: int = 60) -> list[list[int]]:
    rng = Random(3)
    level, rows = [0, 0, 0, 0], []
    for _ in range(ticks):
        level = [rng.choice([n] * 9 + [rng.randrange(30)]) for n in level]
        rows.append([level[0], level[1], 0, level[3] // 9])
    return rows


# Without noise


@pytest.mark.parametrize("perturber", ["laplace", "pegasus"])
def test_without_noise_every_node_gets_its_count(perturber: str) -> None:
    mechanism = Hierarchy(TREE, SILENT, UNEQUAL, perturber)
    stream = [[5, 7, 11, 13], [9, 0, 1, 2], [0, 0, 0, 0]]
    values, _ = run(mechanism, stream)
    assert [v.values.tolist() for v in values] == [[5, 7, 11, 13, 20, 16, 36], [9, 0, 1, 2, 2, 10, 12], [0] * 7]


@pytest.mark.parametrize("perturber", ["laplace", "pegasus"])
@pytest.mark.parametrize(
    ("counts", "published"),
    [
        ([5, 5, 0, 0], [5, 5, 0, 0, 5, 5, 10]),
        ([4, 5, 0, 0], [0, 5, 0, 0, 5, 4, 9]),
        ([2, 1, 1, 0], [0, 0, 0, 0, 0, 0, 4]),
    ],
)
def test_without_noise_descendants_of_a_node_below_the_threshold_are_0(
    perturber: str, counts: list[int], published: list[int]
) -> None:
    """β = 5: a floor of 4 keeps its count, its zones are skipped; a building of 4 hides all below."""
    mechanism = Hierarchy(TREE, SILENT, THIRDS, perturber, pruning=PRUNE)
    [value], _ = run(mechanism, [counts])
    assert value.values.tolist() == published


def test_a_zone_below_the_threshold_is_not_tested() -> None:
    mechanism = Hierarchy(TREE, SILENT, THIRDS, pruning=PRUNE)
    [value], _ = run(mechanism, [[1, 9, 9, 2]])
    assert value.values.tolist() == [1, 9, 9, 2, 11, 10, 21]


# Budget


def spent_at(mechanism: Hierarchy, level: int, kind: int) -> Fraction:
    """Return what a node spends on noise and grouper; tests come on top."""
    if kind == PRUNED:
        return F(0)
    budget = mechanism.budget
    return budget.noise_at(level, kind) + budget.grouper * budget.shares[level] * budget.measured


def outcomes(tree: Tree) -> list[Ints]:
    """Every pattern of kinds that pruning can give."""
    found = {}
    for bits in product((False, True), repeat=tree.nodes):
        kinds = np.full(tree.nodes, MEASURED)
        for level in range(tree.height - 1, -1, -1):
            here = tree.levels[level]
            for place, node in enumerate(range(here.start, here.stop)):
                if level < tree.height - 1:
                    parent = tree.levels[level + 1].start + tree.parents[level][place]
                    if kinds[parent] != MEASURED:
                        kinds[node] = PRUNED
                        continue
                if level and bits[node]:
                    kinds[node] = CUT
        found[kinds.tobytes()] = kinds
    return list(found.values())


def test_half_widths_are_of_the_noise_or_where_values_are_grouped_of_the_posterior() -> None:
    kinds = {name: Hierarchy(TREE, F(1), THIRDS, name).half_width_kind for name in ("laplace", "pegasus")}
    assert kinds == {"laplace": "noise", "pegasus": "posterior"}


def test_without_pruning_no_test_costs_anything() -> None:
    assert Hierarchy(TREE, F("0.7"), THIRDS).budget.test == 0


@pytest.mark.parametrize("perturber", ["laplace", "pegasus"])
@pytest.mark.parametrize(
    ("tree", "shares"),
    [(TREE, THIRDS), (TREE, UNEQUAL), (TALL, (F(1, 2), F(1, 8), F(1, 4), F(1, 8)))],
)
def test_every_path_costs_exactly_epsilon_whatever_is_pruned(
    tree: Tree, shares: tuple[Fraction, ...], perturber: str
) -> None:
    mechanism = Hierarchy(tree, F("0.7"), shares, perturber, pruning=PRUNE)
    tests = mechanism.budget.test * (tree.height - 1)
    seen = set()
    for kinds in outcomes(tree):
        for leaf in range(len(tree.names[0])):
            place, spent, path = leaf, F(0), []
            for level in range(tree.height):
                kind = int(kinds[tree.levels[level].start + place])
                path.append(kind)
                spent += spent_at(mechanism, level, kind)
                place = tree.parents[level][place] if level < tree.height - 1 else place
            seen.add(tuple(path))
            assert spent + tests == F("0.7")
    assert len(seen) == tree.height, "cut at each level but the leaves, or nowhere"


@pytest.mark.parametrize("perturber", ["laplace", "pegasus"])
def test_levels_spend_their_shares_and_these_make_epsilon(perturber: str) -> None:
    mechanism = Hierarchy(TREE, F("0.7"), THIRDS, perturber)
    assert [spent_at(mechanism, level, MEASURED) for level in range(3)] == [F("0.7") / 3] * 3
    part = F(4, 5) if perturber == "pegasus" else 1
    assert mechanism.budget.noise_at(0) == F("0.7") / 3 * part
    assert mechanism.noise.epsilon == F("0.7") * part
    assert mechanism.noise_scales() == pytest.approx([3 / 0.7 / float(part)] * 7)
    if perturber == "pegasus":
        assert [grouper.epsilon for grouper in mechanism.groupers] == [F("0.7") / 3] * 3


@each_variant
def test_step_draws_at_exactly_what_is_booked(
    perturber: str, pruning: Pruning | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epsilons of each chain and test, as the noise functions are asked for them."""
    chains: list[Fraction] = []
    tests: list[Fraction] = []

    def recorded_chain(*given: Any) -> Any:
        chains.extend(given[3])
        return chain(*given)

    def recorded_noise(*given: Any) -> Ints:
        tests.append(given[2])
        return discrete_laplace(*given)

    monkeypatch.setattr("stream.mechanisms.hierarchy.chain", recorded_chain)
    monkeypatch.setattr("stream.mechanisms.hierarchy.discrete_laplace", recorded_noise)
    mechanism = Hierarchy(TREE, F(50), UNEQUAL, perturber, pruning=pruning)
    run(mechanism, [[1, 9, 1, 9]])
    r, part = (F(45), 5) if pruning else (F(50), 0)
    grouped = F(1, 5) if perturber == "pegasus" else 0
    measured = [share * r * (1 - grouped) for share in UNEQUAL]
    cut = [F("0.9") * r - grouped * F("0.3") * r] if pruning else []
    assert tests == ([F(part, 2)] * 2 if pruning else [])
    assert chains == [measured[0], measured[1], *cut, measured[2]]


# Noise


def drawn(mechanism: Hierarchy, counts: Ints) -> Ints:
    item = input_of(0, *counts.tolist())
    return mechanism.drawn(item, mechanism.tree.sums(counts), np.full(mechanism.tree.nodes, MEASURED))


def test_each_level_has_noise_of_its_own_even_where_its_counts_are_the_same() -> None:
    """One zone a floor, equal shares: floors and zones have the same counts and the same names."""
    zones = [f"{n:03}" for n in range(100)]
    mechanism = Hierarchy(site_tree(zones, zones, ["zone", "floor"]), F(1, 10), (F(1, 2), F(1, 2)))
    noise = drawn(mechanism, np.arange(100))
    assert (noise[:100] != noise[100:]).mean() > 0.9


def test_audiences_share_each_levels_chain() -> None:
    """A coarse audience's noise is what the chain makes of the finest one's, level by level."""
    audiences = (F(2), F(1, 2))
    fine, coarse = (Hierarchy(TREE, e, UNEQUAL, epsilons=audiences) for e in audiences)
    counts = np.array([5, 7, 11, 13])
    for level, here in enumerate(TREE.levels):
        context = replace(input_of(0, 0).context, zones=(f"level {level} of 3", *TREE.names[level]))
        shares = [e * UNEQUAL[level] for e in audiences]
        noise = chain(KEY, context, counts_digest(TREE.sums(counts)[here]), shares, len(TREE.names[level]))
        assert drawn(fine, counts)[here].tolist() == noise[shares[0]].tolist()
        assert drawn(coarse, counts)[here].tolist() == noise[shares[1]].tolist()
    alone = Hierarchy(TREE, audiences[0], UNEQUAL)
    assert drawn(alone, counts).tolist() == drawn(fine, counts).tolist()


def test_noise_changes_with_window_key_and_counts() -> None:
    mechanism = Hierarchy(TREE, F(1, 10), UNEQUAL)
    item, kinds = input_of(0, 1, 2, 3, 4), np.full(7, MEASURED)
    counts = TREE.sums(item.counts)
    base = mechanism.drawn(item, counts, kinds)
    for other in (input_of(1, 1, 2, 3, 4), item._replace(key=b"o" * 32)):
        assert (mechanism.drawn(other, counts, kinds) != base).any()
    assert (mechanism.drawn(item, counts + 1, kinds) != base).any()


# What is published


@each_variant
def test_published_integers_add_up_down_to_the_cut_nodes(perturber: str, pruning: Pruning | None) -> None:
    mechanism = Hierarchy(TREE, F(2), THIRDS, perturber, pruning=pruning)
    values, _ = run(mechanism, table())
    pruned = 0
    for window, (value, counts) in enumerate(zip(values, table(), strict=True)):
        numbers, item = value.values, input_of(window, *counts)
        kinds = mechanism.prune(item, TREE.sums(item.counts))
        sums = TREE.sums(numbers[:4])
        pruned += int((kinds == PRUNED).sum())
        assert (numbers[kinds == PRUNED] == 0).all()
        if kinds[6] == MEASURED:
            assert numbers[4] + numbers[5] == numbers[6]
        for floor in (4, 5):
            if kinds[floor] == MEASURED:
                assert sums[floor] == numbers[floor]
        assert perturber == "laplace" or numbers.min() >= 0
        assert value.exact.numerator.tolist() == numbers.tolist()
    assert (pruned > 20) == (pruning is not None)


def test_laplace_values_may_be_negative() -> None:
    values, _ = run(Hierarchy(TREE, F(1, 2), THIRDS), [[0] * 4] * 5)
    assert min(v.values.min() for v in values) < 0


@each_variant
def test_release_repeats_to_the_byte(perturber: str, pruning: Pruning | None) -> None:
    mechanism = Hierarchy(TREE, F(1), UNEQUAL, perturber, pruning=pruning)
    one, other = run(mechanism, table())[0], run(mechanism, table())[0]
    assert [v.values.tolist() for v in one] == [v.values.tolist() for v in other]
    assert [v.half_width.tolist() for v in one] == [v.half_width.tolist() for v in other]


def test_half_widths_grow_with_the_noise_and_do_not_depend_on_counts_without_pruning() -> None:
    coarse, fine = (run(Hierarchy(TREE, e, THIRDS), table())[0] for e in (F(1, 10), F(1)))
    assert len({tuple(v.half_width.tolist()) for v in fine}) == 1
    assert (coarse[0].half_width > 5 * fine[0].half_width).all()


def test_consistency_takes_less_from_the_errors_of_floors_and_building_than_from_those_of_zones() -> None:
    mechanism = Hierarchy(TREE, F(1), THIRDS, "pegasus")
    precision, kinds = np.ones(TREE.nodes), np.full(TREE.nodes, MEASURED)
    variance = downward_pass(TREE, gather(TREE, np.zeros(TREE.nodes), precision)).variance
    left = mechanism._left(kinds, np.ones(TREE.nodes))
    assert (variance < 1).all()
    assert left[:4] == pytest.approx(variance[:4] ** 0.5)
    assert left[4:] == pytest.approx(variance[4:] ** 0.25)


def test_half_width_of_a_pruned_node_reaches_what_its_parent_may_be() -> None:
    [value], _ = run(Hierarchy(TREE, SILENT, THIRDS, pruning=PRUNE), [[2, 9, 2, 9]])
    assert value.values.tolist() == [0, 9, 0, 9, 18, 4, 22]
    assert value.half_width[0] == value.half_width[2] == 4 + value.half_width[5]
    [value], _ = run(Hierarchy(TREE, SILENT, THIRDS, pruning=PRUNE), [[1, 1, 1, 1]])
    assert value.half_width[:6].tolist() == [4 + value.half_width[6]] * 6


# Groups


@pytest.fixture
def silent_groupers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grouper's noise is as large as its threshold at any epsilon, so it has to be taken away."""
    monkeypatch.setattr(Grouper, "draw", lambda self, *_: (np.zeros(self.zones, np.int64),) * 2)


@pytest.mark.usefixtures("silent_groupers")
def test_pruned_node_closes_its_group_and_its_count_stays_nowhere() -> None:
    mechanism = Hierarchy(TREE, SILENT, THIRDS, "pegasus", pruning=PRUNE)
    _, states = run(mechanism, [[7, 8, 7, 8], [1, 8, 1, 8], [7, 8, 7, 8]])
    leaves = [state.groups[0] for state in states]
    assert leaves[0].size.tolist() == [1, 1, 1, 1]
    assert leaves[1].size.tolist() == [0, 2, 0, 2]
    assert not leaves[1].counts[[0, 2]].any()
    assert not leaves[1].noisy[[0, 2]].any()
    assert leaves[1].threshold[[0, 2]].tolist() == [0, 0]
    assert leaves[2].size.tolist() == [1, 3, 1, 3]


@pytest.mark.usefixtures("silent_groupers")
def test_group_closes_where_the_noise_of_its_node_changes_its_scale() -> None:
    """Floor 2 is cut in the second window, so it has its zones' budget there: a group of its own."""
    mechanism = Hierarchy(TREE, SILENT, THIRDS, "pegasus", pruning=Pruning(F("0.1"), 5))
    _, states = run(mechanism, [[2, 8, 3, 8], [2, 8, 2, 8], [2, 8, 2, 8], [2, 8, 3, 8]])
    assert [state.groups[1].size.tolist() for state in states] == [[1, 1], [2, 1], [3, 2], [4, 1]]


def test_groups_of_each_level_are_those_of_its_own_grouper() -> None:
    mechanism = Hierarchy(TREE, F(3), UNEQUAL, "pegasus")
    groupers = [Grouper(len(names), F(3) * share) for names, share in zip(TREE.names, UNEQUAL, strict=True)]
    stored = [grouper.initial() for grouper in groupers]
    _, states = run(mechanism, table())
    for window, (counts, state) in enumerate(zip(table(), states, strict=True)):
        item = input_of(window, *counts)
        nodes = TREE.sums(item.counts)
        for level, here in enumerate(TREE.levels):
            context = replace(item.context, zones=(f"level {level} of 3", *TREE.names[level]))
            rho, nu = groupers[level].draw(KEY, context, stored[level], nodes[here])
            noisy = nodes + mechanism.drawn(item, nodes, np.full(7, MEASURED))
            stored[level], _ = groupers[level].step(stored[level], GroupItem(nodes[here], noisy[here], rho, nu))
            assert stored[level].size.tolist() == state.groups[level].size.tolist()
            assert stored[level].threshold.tolist() == state.groups[level].threshold.tolist()


def test_pause_closes_all_groups() -> None:
    mechanism = Hierarchy(TREE, SILENT, THIRDS, "pegasus")
    _, states = run(mechanism, [[7, 8, 7, 8]])
    paused = mechanism.pause(states[0])
    assert all(not group.size.any() and not group.counts.any() for group in paused.groups)
    assert mechanism.decode(mechanism.encode(paused)).kinds == states[0].kinds
    assert Hierarchy(TREE, F(1), THIRDS).pause(HierarchyState()) == HierarchyState()


# Byte form, errors


def test_state_of_another_stage_is_refused() -> None:
    mechanism = Hierarchy(TREE, SILENT, THIRDS, "pegasus")
    data = mechanism.encode(run(mechanism, [[7, 8, 7, 8]])[1][0])
    for broken in (b"", data[:6], data[:9], data[:-1], data + b"\0", b"\x07" + data[1:]):
        with pytest.raises(DataError):
            mechanism.decode(broken)
    with pytest.raises(DataError, match="must begin with the kind of each node"):
        Hierarchy(TREE, F(1), THIRDS).decode(b"x")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shares": (F(1, 2), F(1, 2))}, "shares must be 3 positive numbers, one a level, with the sum 1"),
        ({"shares": (F(1, 2), F(1, 2), F(1, 10))}, "with the sum 1"),
        ({"shares": (F(3, 2), F(-1), F(1, 2))}, "3 positive numbers"),
        ({"perturber": "filter"}, "perturber must be one of laplace, pegasus, got 'filter'"),
        ({"smoother": "mode"}, "smoother must be one of"),
        ({"epsilons": (F(2), F(3))}, "epsilons must contain epsilon, got 1"),
        ({"pruning": Pruning(F(1), 5)}, "pruning.share must be between 0 and 1"),
        ({"pruning": PRUNE, "epsilons": (F(1), F(2))}, "pruning must have one audience only, got 2 epsilons"),
        ({"epsilon": F(1, 10**9)}, "epsilon must be at least"),
    ],
)
def test_parameters_out_of_range_are_refused(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"tree": TREE, "epsilon": F(1), "shares": THIRDS} | changed
    with pytest.raises(UsageError, match=message):
        Hierarchy(**given)


def test_pruning_wants_more_than_one_level() -> None:
    with pytest.raises(UsageError, match="levels at least 2"):
        Hierarchy(site_tree(["a"], ["1"], ["zone"]), F(1), (F(1),), pruning=PRUNE)
