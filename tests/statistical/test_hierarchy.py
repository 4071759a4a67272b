"""What hierarchies promise, measured: noise scales, variances of consistent estimates, half-widths, ε.

The tests are functions of fixed keys, so they cannot fail by chance later; a right mechanism would have
failed at most once in a million choices of keys.
"""

from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import binomtest

from stream.mechanisms.base import TickInput, WeekSlot
from stream.mechanisms.consistency import site_tree
from stream.mechanisms.exact import Ints
from stream.mechanisms.hierarchy import CUT, MEASURED, Hierarchy, Pruning
from stream.mechanisms.noise import pmf
from stream.mechanisms.noise_labels import Context
from tests.statistical.chi_square import of_laplace

F = Fraction
KEY = b"hierarchy".ljust(32, b".")
ALPHA = 1e-6
N = 200_000
THIRDS = (F(1, 3),) * 3
SHARES = (F("0.5"), F("0.3"), F("0.2"))


@lru_cache(maxsize=1)
def wide() -> tuple[str, ...]:
    return tuple(map(str, range(N)))


def mechanism(perturber: str, below: int = 5) -> Hierarchy:
    """ε = 2; 200,000 zones, each a floor, in as many draws of each level's noise (and one building)."""
    return Hierarchy(site_tree(wide(), wide()), F(2), SHARES, perturber, pruning=Pruning(F("0.25"), below))


def input_of(window: int, counts: Ints) -> TickInput:
    context = Context("dbh", "levels", window, 1, ("a",))
    return TickInput(counts, np.zeros_like(counts), KEY, context, WeekSlot(0, 0, False))


# Noise scales


@pytest.mark.parametrize(
    ("perturber", "kind", "level", "epsilon"),
    [
        ("laplace", MEASURED, 0, 0.75),
        ("laplace", MEASURED, 1, 0.45),
        ("laplace", CUT, 1, 1.2),
        ("pegasus", MEASURED, 0, 0.6),
        ("pegasus", MEASURED, 1, 0.36),
        ("pegasus", CUT, 1, 1.11),
    ],
)
def test_noise_of_each_level_has_the_scale_of_its_share(perturber: str, kind: int, level: int, epsilon: float) -> None:
    """ε = 2, of which 1.5 is measured: 0.5, 0.3, 0.2 of it, pegasus' noise four fifths; cut adds the zones' part."""
    made = mechanism(perturber)
    zero = np.zeros(made.tree.nodes, np.int64)
    noise = made.drawn(input_of(0, zero[:N]), zero, np.full(made.tree.nodes, kind if level else MEASURED))
    drawn = noise[made.tree.levels[level]]
    assert of_laplace(drawn, epsilon) > ALPHA
    assert of_laplace(drawn, epsilon * 1.05) < ALPHA
    assert of_laplace(drawn, epsilon * 0.95) < ALPHA


@pytest.mark.parametrize("below", [1, 5, -3])
def test_pruning_compares_with_noise_of_its_share_of_epsilon(below: int) -> None:
    """ε_pr = 0.5 over two tests: 0.25 each. Pr[Z < β] by the exact law."""
    made = mechanism("laplace", below=below)
    counts = np.zeros(made.tree.nodes, np.int64)
    counts[-1] = 10**6
    kinds = made.prune(input_of(below, counts[:N]), counts)[made.tree.levels[1]]
    cut = int((kinds == CUT).sum())
    assert set(kinds.tolist()) == {CUT, MEASURED}

    def p_value(epsilon: float) -> float:
        below_beta = pmf(Fraction(epsilon), np.arange(-2000, below)).sum()
        return float(binomtest(cut, N, below_beta).pvalue)

    assert p_value(0.25) > ALPHA
    if below == 5:
        assert p_value(0.25 * 1.05) < ALPHA
        assert p_value(0.25 / 1.05) < ALPHA


# The epsilon of a path, by enumeration


def worst_ratio(made: Hierarchy, count: int, test_epsilon: float, tested: int) -> float:
    """The largest |ln ratio| of all outcomes of one path whose counts are ``count`` or one more.

    An outcome: which levels' tests passed, and the measured values. Siblings' draws are the same on both
    sides and cancel. The laws of tests and values are enumerated on a grid, tails beyond it left out.
    """
    grid = np.arange(-400, 401)
    beta, height = made.pruning.below if made.pruning else 0, made.tree.height

    def test(epsilon: float) -> tuple[float, ...]:
        """Return the ln ratios of being cut and of passing."""
        law = [pmf(Fraction(epsilon), grid - c) for c in (count, count + 1)]
        return tuple(
            float(np.log(p[side].sum() / q[side].sum())) for side in (grid < beta, grid >= beta) for p, q in [law]
        )

    def value(epsilon: Fraction) -> tuple[float, float]:
        law = [pmf(epsilon, grid[200:601] - c) for c in (count, count + 1)]
        ratios = np.log(law[0] / law[1])
        return float(ratios.min()), float(ratios.max())

    cut, passed = test(test_epsilon)
    largest = 0.0
    for cut_at in (None, *range(height - 1, 0, -1)):
        low = high = 0.0
        for level in range(height - 1, (0 if cut_at is None else cut_at) - 1, -1):
            kind = CUT if level == cut_at else MEASURED
            least, most = value(made.budget.noise_at(level, kind))
            tests = (tested if level else 0) * (cut if kind == CUT else passed)
            low, high = low + least + tests, high + most + tests
        largest = max(largest, -low, high)
    return largest


@pytest.mark.parametrize("levels", [("zone", "floor"), ("zone", "floor", "building")])
def test_pruned_tree_costs_epsilon_and_no_less(levels: tuple[str, ...]) -> None:
    """At every count around the threshold at most ε; far from it, ε is reached."""
    tree = site_tree(["a", "b"], ["1", "1"], levels)
    made = Hierarchy(tree, F("0.9"), (F(1, len(levels)),) * len(levels), pruning=Pruning(F("0.4"), 6))
    test_epsilon = float(made.budget.test)
    ratios = [worst_ratio(made, count, test_epsilon, 1) for count in range(80)]
    assert max(ratios) <= 0.9 + 1e-9
    assert max(ratios) > 0.9 * 0.999


def test_the_same_enumeration_sees_a_test_that_is_too_dear() -> None:
    made = Hierarchy(site_tree(["a"], ["1"]), F("0.9"), THIRDS, pruning=Pruning(F("0.4"), 6))
    dear = float(made.budget.test) * 1.05
    assert max(worst_ratio(made, count, dear, 1) for count in range(40)) > 0.9
    assert max(worst_ratio(made, count, float(made.budget.test), 2) for count in range(40)) > 0.9


# What consistency gives

ZONES, FLOORS, WINDOWS, EPSILON = 66, 6, 500, F("0.05")
TREE = site_tree([str(n) for n in range(ZONES)], [str(n % FLOORS) for n in range(ZONES)])


@lru_cache(maxsize=4)
def errors(
    shares: tuple[Fraction, ...], epsilon: Fraction, perturber: str = "laplace", windows: int = WINDOWS
) -> tuple[Ints, Ints]:
    """Errors and half-widths of all nodes over windows of steady counts, shape [windows, nodes]."""
    made, counts = Hierarchy(TREE, epsilon, shares, perturber), np.arange(ZONES) * 40 + 1000
    state, found, widths = made.initial(), [], []
    for window in range(windows):
        state, [value] = made.step(state, input_of(window, counts))
        found.append(value.values - TREE.sums(counts))
        widths.append(value.half_width)
    return np.array(found), np.array(widths)


@pytest.mark.parametrize(
    ("weights", "known"), [((1, 1, 1), (4.06, 3.76, 3.90)), ((3, 1, 1), (2.29, 4.89, 6.18))], ids=["thirds", "zones"]
)
def test_measured_errors_are_those_of_least_squares(weights: tuple[int, ...], known: tuple[float, ...]) -> None:
    """Standard deviations in 1/ε, of 33,000, 3,000 and 500 errors; five standard errors each."""
    found, _ = errors(tuple(F(w, sum(weights)) for w in weights), EPSILON)
    for here, wanted in zip(TREE.levels, known, strict=True):
        error = found[:, here]
        assert error.std() * float(EPSILON) == pytest.approx(wanted, rel=5 * np.sqrt(5 / 4 / error.size) + 0.004)
        assert abs(error.mean()) < 5 * error.std() / np.sqrt(error.shape[0])


def test_consistency_takes_away_the_known_part_of_the_noise() -> None:
    """Thirds: without it each node would have √2 · 3 = 4.24/ε."""
    found, _ = errors(THIRDS, EPSILON)
    raw = np.sqrt(2) * 3 / float(EPSILON)
    ratio = [found[:, here].var() / raw**2 for here in TREE.levels]
    assert ratio == pytest.approx([(x / 4.2426) ** 2 for x in (4.06, 3.76, 3.90)], rel=0.2)
    assert ratio[0] < 0.95
    assert ratio[1] < 0.88


@pytest.mark.parametrize(
    ("epsilon", "perturber", "windows"),
    [
        (F("0.05"), "laplace", WINDOWS),
        (F("12"), "laplace", WINDOWS),
        (F("0.05"), "pegasus", WINDOWS),
        pytest.param(F("2"), "laplace", WINDOWS, marks=pytest.mark.long),
        *(pytest.param(F(epsilon), "pegasus", WINDOWS, marks=pytest.mark.long) for epsilon in ("2", "12")),
    ],
)
def test_half_widths_hold_95_of_100_errors_and_are_not_idle(epsilon: Fraction, perturber: str, windows: int) -> None:
    found, widths = errors(THIRDS, epsilon, perturber, windows)
    for here in TREE.levels:
        inside = (np.abs(found[:, here]) <= widths[:, here]).mean()
        assert inside > 0.95 - 0.005
        if epsilon == F("0.05") and perturber == "laplace":
            assert inside < 0.985
