"""Noise of its own for each node of a tree, by any law, plain or filtered, and sums that hold."""

from dataclasses import replace
from fractions import Fraction
from hashlib import sha256

import numpy as np
import pytest

from stream.domains import Draw
from stream.errors import DataError, UsageError
from stream.mechanisms.base import RevisedDay, TickInput, WeekSlot
from stream.mechanisms.consistency import leaf_of_zone, site_tree
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter.learning import LearningFilter
from stream.mechanisms.filter.step import FilterItem, RegimeFilter
from stream.mechanisms.gaussian import discrete_gaussian, gaussian_chain
from stream.mechanisms.measured_tree import MeasuredTree
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.mechanisms.noise_parameters import gaussian_noise, laplace_noise
from stream.records import MINUTE

F = Fraction
KEY = b"k" * 32
ZONES, FLOORS = ["a", "b", "c", "d"], ["2", "1", "2", "1"]
TREE = site_tree(ZONES, FLOORS)
FINE, COARSE = tuple(map(gaussian_noise, (F(100), F(64), F(36)))), tuple(map(gaussian_noise, (F(400), F(256), F(144))))
PLAIN = MeasuredTree(TREE, COARSE, tuple(zip(FINE, COARSE, strict=True)))
CAPACITIES = ((40, 40, 40, 40), (80, 80), (160,))
FILTERED = replace(
    PLAIN, filters=tuple(LearningFilter(RegimeFilter(c, law)) for c, law in zip(CAPACITIES, COARSE, strict=True))
)


def tick(number: int, counts: list[int]) -> TickInput:
    context = Context("dbh", "levels", number * 5 * MINUTE, 1, ("x",), "/day 3/96")
    return TickInput(
        np.array(counts), np.zeros(4, np.int64), KEY, context, WeekSlot(number // 6 % 48, number // 12 % 24, False)
    )


def sums(values: Ints) -> list[int]:
    """What floors 1 and 2 and the building are by their children."""
    return [values[1] + values[3], values[0] + values[2], values[4] + values[5]]


@pytest.mark.parametrize("made", [PLAIN, FILTERED], ids=["plain", "filtered"])
def test_floors_and_building_are_sums_of_what_is_below_them(made: MeasuredTree) -> None:
    state = made.initial()
    for number in range(30):
        state, [values] = made.step(state, tick(number, [number % 7, 3, 12, 0]))
        assert values.values[4:].tolist() == sums(values.values)
        assert (values.values >= 0).all() or made is PLAIN


def test_each_level_has_a_chain_of_its_own_whose_labels_hold_the_level_and_the_day() -> None:
    item = tick(0, [5, 6, 7, 8])
    noisy, counts = PLAIN._noisy(item), TREE.sums(item.counts)
    for level, here in enumerate(TREE.levels):
        context = replace(item.context, zones=(f"level {level} of 3", *TREE.names[level]))
        digest = counts_digest(counts[here])
        wanted = gaussian_chain(KEY, context, digest, [FINE[level].exact, COARSE[level].exact], here.stop - here.start)
        assert (noisy[here] - counts[here] == wanted[COARSE[level].exact]).all()
        assert context.label(Draw.GAUSSIAN, F(1), digest=digest) != replace(context, suffix="").label(
            Draw.GAUSSIAN, F(1), digest=digest
        )
    fine = replace(PLAIN, laws=FINE)._noisy(item) - counts
    leaves = replace(item.context, zones=("level 0 of 3", *ZONES))
    name = leaves.label(Draw.GAUSSIAN, F(100), digest=counts_digest(counts[:4]))
    assert fine[:4].tolist() == discrete_gaussian(KEY, name, F(100), 4).tolist()


def test_each_node_has_a_filter_of_its_own_that_reads_its_noisy_values_alone() -> None:
    state, alone = FILTERED.initial(), [each.initial() for each in FILTERED.filters]
    for number in range(12):
        item = tick(number, [9, 3, 12, 0])
        noisy = FILTERED._noisy(item)
        state, [values] = FILTERED.step(state, item)
        medians, widths = [], []
        for level, here in enumerate(TREE.levels):
            alone[level], [reported] = FILTERED.filters[level].step(alone[level], FilterItem(noisy[here], item.slot))
            medians += reported.estimate.median.tolist()
            widths += reported.estimate.half_width.tolist()
        assert FILTERED.encode(state) == FILTERED.encode(tuple(alone))
        for learning, own, expected in zip(FILTERED.filters, FILTERED.states(state), alone, strict=True):
            assert learning.filter.encode(own) == learning.filter.encode(expected.filter)
        assert values.half_width.tolist() == np.maximum(widths, np.abs(values.values - np.array(medians))).tolist()


def test_what_is_told_of_a_day_is_told_of_each_node_once_and_of_whole_nodes() -> None:
    """Days of 60 windows: seven nodes, told of over the first twelve windows of the second day."""
    long = 60
    state, reported, noisy = FILTERED.initial(), list[RevisedDay](), list[Ints]()
    for number in range(long + 14):
        item = tick(number, [9, 3, 12, 0])
        item = item._replace(slot=item.slot._replace(day=number // long))
        noisy.append(FILTERED._noisy(item))
        state, [values] = FILTERED.step(state, item)
        reported += values.histories
    assert sorted(node for each in reported for node in each.zones.tolist()) == list(range(FILTERED.nodes))
    median = np.concatenate([each.median for each in reported], axis=1)
    by_node: Ints = median[:, np.argsort(np.concatenate([each.zones for each in reported]))]
    for level, here in enumerate(TREE.levels):
        alone, found = FILTERED.filters[level].initial(), np.zeros((long, len(TREE.names[level])), np.int64)
        for number, row in enumerate(noisy):
            slot = tick(number, [0] * 4).slot._replace(day=number // long)
            alone, [own] = FILTERED.filters[level].step(alone, FilterItem(row[here], slot))
            for each in own.histories:
                found[:, each.zones] = each.median
        assert by_node.T[here].T.tolist() == found.tolist()


def test_the_rest_of_a_day_is_told_of_every_node() -> None:
    state = FILTERED.initial()
    for number in range(6):
        state, _ = FILTERED.step(state, tick(number, [9, 3, 12, 0]))
    told = FILTERED.rest(state)
    assert sorted(node for each in told for node in each.zones.tolist()) == list(range(7))
    assert {(each.day, len(each.median)) for each in told} == {(0, 6)}


def test_a_node_that_its_filter_knows_well_moves_less_than_one_it_does_not() -> None:
    """Building 10 ± 1, floors 20 ± 4 and 0 ± 4: what is too much is taken from the floors."""
    tree = site_tree(["a", "b"], ["1", "2"], ["floor", "building"])
    laws = (gaussian_noise(F(100)), gaussian_noise(F(50)))
    made = MeasuredTree(tree, laws, tuple((law,) for law in laws))
    values = made.values_of(np.array([20, 0, 10]), np.array([4, 4, 1]))
    assert values.values.tolist() == [10, 0, 10]
    assert values.half_width.tolist() == [10, 4, 1]


def test_plain_values_are_those_of_least_squares_and_never_clamped() -> None:
    """Two floors and their building at equal variances: each floor moves by a third of what does not add up."""
    tree = site_tree(["a", "b"], ["1", "2"], ["floor", "building"])
    law = gaussian_noise(F(100))
    values = MeasuredTree(tree, (law, law), ((law,), (law,)))._plain(np.array([-31, 10, 0]))
    assert values.values.tolist() == [-24, 17, -7]
    assert values.half_width.tolist() == [17, 17, 17], "√(2/3) σ at each node"


def test_half_widths_of_laplace_noise_have_its_heavier_tails() -> None:
    tree = site_tree(["a"], ["1"], ["building"])
    law = laplace_noise(F(1, 100))
    assert MeasuredTree(tree, (law,), ((law,),))._plain(np.array([0])).half_width.tolist() == [300]


@pytest.mark.parametrize(
    ("levels", "names", "leaves", "height"),
    [
        (["floor", "building"], ("1", "2"), [1, 0, 1, 0], 2),
        (["floor"], ("1", "2"), [1, 0, 1, 0], 1),
        (["building"], ("building",), [0, 0, 0, 0], 1),
        (["zone", "building"], tuple(ZONES), [0, 1, 2, 3], 2),
    ],
)
def test_tree_begins_with_the_first_level_that_is_asked_for(
    levels: list[str], names: tuple[str, ...], leaves: list[int], height: int
) -> None:
    tree = site_tree(ZONES, FLOORS, levels)
    assert (tree.names[0], tree.height) == (names, height)
    assert leaf_of_zone(FLOORS, levels).tolist() == leaves


@pytest.mark.parametrize("levels", [[], ["building", "floor"], ["room"]])
def test_levels_out_of_order_are_refused(levels: list[str]) -> None:
    with pytest.raises(UsageError, match="levels must be"):
        site_tree(ZONES, FLOORS, levels)


def test_laws_that_do_not_fit_the_tree_are_refused() -> None:
    with pytest.raises(UsageError, match="must be 3, one a level"):
        replace(PLAIN, laws=COARSE[:2])
    with pytest.raises(UsageError, match=r"chains\[0\] must contain"):
        replace(PLAIN, laws=(gaussian_noise(F(1)), *COARSE[1:]))


def test_state_survives_its_byte_form_and_a_pause_leaves_it_alone() -> None:
    plain, through = FILTERED.initial(), FILTERED.initial()
    for number in range(20):
        item = tick(number, [number, 3, 12, 0])
        plain, [expected] = FILTERED.step(plain, item)
        through, [values] = FILTERED.step(FILTERED.decode(FILTERED.encode(FILTERED.pause(through))), item)
        assert values.values.tolist() == expected.values.tolist()
    assert PLAIN.encode(PLAIN.initial()) == b""
    assert FILTERED.half_width_kind == "posterior" != PLAIN.half_width_kind == "noise"


@pytest.mark.pinned
def test_state_and_values_are_the_same_bytes_on_every_machine() -> None:
    state, hashed = FILTERED.initial(), sha256()
    for number in range(60):
        state, [values] = FILTERED.step(state, tick(number, [number % 9, 3, 12, number // 5]))
        hashed.update(values.values.tobytes() + values.half_width.tobytes())
    hashed.update(FILTERED.encode(state))
    assert hashed.hexdigest() == PINNED


PINNED = "6c29c03e55adca520b314bbacf73e7611ada1dd41bcb050279c9ae2751ef817a"


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b + b"\0", lambda _: b""])
def test_bytes_that_are_no_state_are_refused(spoil: object) -> None:
    with pytest.raises(DataError):
        FILTERED.decode(spoil(FILTERED.encode(FILTERED.initial())))  # type: ignore[operator]
