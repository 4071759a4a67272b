from hashlib import sha256
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from stream.errors import UsageError
from stream.mechanisms.consistency import (
    Consistent,
    Gathered,
    Tree,
    _spread,
    downward_pass,
    gather,
    integer_estimates,
    leaf_of_zone,
    site_tree,
)
from stream.mechanisms.exact import Floats


def consistent(tree: Tree, measured: Floats, precision: Floats) -> Consistent:
    """Return the generalised least squares estimates of all nodes."""
    return downward_pass(tree, gather(tree, measured, precision))


def random_tree(rng: Random, height: int) -> Tree:
    sizes = [1] if rng.random() < 0.8 else [2]
    for _ in range(height - 1):
        sizes.append(rng.randrange(sizes[-1], 3 * sizes[-1] + 2))
    sizes.reverse()
    parents = []
    for below, above in pairwise(sizes):
        row = [*range(above), *(rng.randrange(above) for _ in range(below - above))]
        rng.shuffle(row)
        parents.append(tuple(row))
    names = tuple(tuple(f"{level}-{n}" for n in range(size)) for level, size in enumerate(sizes))
    return Tree(names, tuple(parents))


def design(tree: Tree) -> Floats:
    """Which leaf a node counts, shape [nodes, leaves]."""
    leaves = len(tree.names[0])
    return np.column_stack([tree.sums(row) for row in np.eye(leaves, dtype=np.int64)]).astype(float)


def measured(tree: Tree, rng: Random, missing: float = 0.0) -> tuple[Floats, Floats]:
    y = np.array([rng.uniform(-30, 40) for _ in range(tree.nodes)])
    precision = np.array([rng.uniform(0.01, 3) for _ in range(tree.nodes)])
    inner = np.arange(tree.nodes) >= len(tree.names[0])
    precision[inner & (np.array([rng.random() for _ in range(tree.nodes)]) < missing)] = 0
    return y, precision


def adds_up(tree: Tree, values: Floats) -> bool:
    return np.allclose(design(tree) @ values[: len(tree.names[0])], values, atol=1e-8)


# The tree


def test_site_tree_has_zones_in_order_then_floors_sorted_then_the_building() -> None:
    tree = site_tree(["a", "b", "c"], ["2", "1", "2"])
    assert tree.names == (("a", "b", "c"), ("1", "2"), ("building",))
    assert tree.sums(np.array([5, 7, 11])).tolist() == [5, 7, 11, 7, 16, 23]


@pytest.mark.parametrize(
    ("levels", "sums"),
    [
        (["zone"], [5, 7, 11]),
        (["zone", "floor"], [5, 7, 11, 7, 16]),
        (["zone", "building"], [5, 7, 11, 23]),
    ],
)
def test_levels_may_be_left_out(levels: list[str], sums: list[int]) -> None:
    assert site_tree(["a", "b", "c"], ["2", "1", "2"], levels).sums(np.array([5, 7, 11])).tolist() == sums


@pytest.mark.parametrize("levels", [["floor", "zone"], [], ["zone", "building", "floor"]])
def test_levels_go_up(levels: list[str]) -> None:
    with pytest.raises(UsageError, match="levels must be zone"):
        site_tree(["a"], ["1"], levels)


@pytest.mark.parametrize("parents", [((0, 2), (0, 0)), ((0, 0), (0, 0)), ((0,), (0, 0)), ((0, 1),)])
def test_tree_wants_a_parent_for_every_node_and_a_child_for_every_parent(parents: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(UsageError, match="parents"):
        Tree((("a", "b"), ("1", "2"), ("building",)), parents)


# Least squares


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(12))
def test_estimates_are_the_weighted_least_squares_solution(seed: int, missing: float) -> None:
    rng = Random(seed)
    tree = random_tree(rng, rng.randrange(1, 5))
    y, precision = measured(tree, rng, missing)
    root = np.sqrt(precision)
    matrix = design(tree)
    leaves = np.linalg.lstsq(root[:, None] * matrix, root * y, rcond=None)[0]
    covariance = matrix @ np.linalg.inv(matrix.T @ (precision[:, None] * matrix)) @ matrix.T
    result = consistent(tree, y, precision)
    assert result.value == pytest.approx(matrix @ leaves, abs=1e-8)
    assert result.variance == pytest.approx(np.diag(covariance), rel=1e-8)
    assert adds_up(tree, result.value)


@pytest.mark.parametrize(
    ("shares", "known"),
    [
        ((1, 0, 0), (1.41, 4.69, 11.3)),
        ((1 / 3, 1 / 3, 1 / 3), (4.06, 3.76, 3.90)),
        ((0.6, 0.2, 0.2), (2.29, 4.89, 6.18)),
    ],
)
def test_64_zones_on_6_floors_have_the_known_standard_deviations(
    shares: tuple[float, ...], known: tuple[float, ...]
) -> None:
    """In units of 1/ε, with the variance 2/ε² of continuous noise; on floors of 11 zones."""
    tree = site_tree([str(n) for n in range(64)], [str(n % 6) for n in range(64)])
    per_node = np.repeat(shares, [len(names) for names in tree.names])
    variance = consistent(tree, np.zeros(tree.nodes), per_node**2 / 2).variance
    assert np.sqrt(variance[[0, 64, 70]]) == pytest.approx(known, abs=0.006, rel=0.002)


def test_absent_subtrees_have_estimate_0_and_count_in_no_sum() -> None:
    """Floor 2's zones are absent: the floor is a leaf to the rest."""
    tree = site_tree(["a", "b", "c"], ["1", "1", "2"])
    y, precision = np.array([3.0, 4, 99, 9, 5, 12]), np.array([1.0, 1, 0, 1, 1, 1])
    result = consistent(tree, y, precision)
    flat = site_tree(["a", "b"], ["1", "1"])
    assert result.value[2] == result.variance[2] == 0
    assert result.value[0] + result.value[1] == pytest.approx(result.value[3])
    assert result.value[3] + result.value[4] == pytest.approx(result.value[5])
    without_building = consistent(flat, y[[0, 1, 3, 3]], np.array([1.0, 1, 1, 0]))
    gathered = gather(tree, y, precision)
    assert gathered.z[3] == pytest.approx(without_building.value[2])
    assert integer_estimates(tree, gathered, negative=True)[4] != 0


# Integers


@pytest.mark.parametrize("negative", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_integers_add_up_exactly(seed: int, negative: bool) -> None:
    rng = Random(seed)
    tree = random_tree(rng, rng.randrange(1, 5))
    y, precision = measured(tree, rng)
    numbers = integer_estimates(tree, gather(tree, y, precision), negative=negative)
    assert tree.sums(numbers[: len(tree.names[0])]).tolist() == numbers.tolist()
    assert negative or numbers.min() >= 0


@pytest.mark.parametrize("seed", range(20))
def test_integers_are_near_their_estimates(seed: int) -> None:
    rng = Random(seed)
    tree = random_tree(rng, 3)
    gathered = gather(tree, *measured(tree, rng))
    numbers = integer_estimates(tree, gathered, negative=True)
    distance = np.abs(numbers - downward_pass(tree, gathered).value)
    assert distance[tree.levels[2]].max() <= 0.5
    assert distance.max() < 2.5


def test_equal_children_share_what_is_left_from_the_first_on() -> None:
    tree = Tree((("a", "b", "c"), ("r",)), ((0, 0, 0),))
    gathered = Gathered(np.array([0.0, 0, 0, 8]), np.array([1.0, 1, 1, 0.1]))
    assert integer_estimates(tree, gathered, negative=True).tolist() == [3, 3, 2, 8]


def one_parent(z: list[float], s: list[float], total: int) -> tuple[Tree, Gathered]:
    names = tuple(str(n) for n in range(len(z)))
    return Tree((names, ("r",)), ((0,) * len(z),)), Gathered(np.array([*z, total]), np.array([*s, 0.1]))


def test_children_below_0_are_set_to_0_and_their_siblings_take_their_part() -> None:
    """Of total 4: (-5.8, 4.2, 5.6) with all three, (0, 1.3, 2.7) without the first."""
    tree, gathered = one_parent([-6.0, 4, 5.4], [1.0, 1, 1], 4)
    assert integer_estimates(tree, gathered, negative=False).tolist() == [0, 1, 3, 4]
    assert integer_estimates(tree, gathered, negative=True).tolist() == [-6, 4, 6, 4]


@pytest.mark.parametrize("seed", range(20))
def test_integers_of_at_least_0_are_least_squares_under_that_condition(seed: int) -> None:
    """x = max(0, z + λs) with the λ that gives the sum; each integer is within 1 of it."""
    rng = Random(seed)
    z, s = [rng.uniform(-20, 20) for _ in range(9)], [rng.uniform(0.1, 4) for _ in range(9)]
    total, low, high = rng.randrange(60), -1e4, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        too_little = sum(max(0.0, a + middle * b) for a, b in zip(z, s, strict=True)) < total
        low, high = (middle, high) if too_little else (low, middle)
    numbers = integer_estimates(*one_parent(z, s, total), negative=False)
    assert np.abs(numbers[:9] - np.maximum(0, np.array(z) + low * np.array(s))).max() < 1 + 1e-6
    assert numbers[:9].sum() == numbers[9] == total


@pytest.mark.pinned
def test_bytes_do_not_depend_on_the_machine() -> None:
    rng = Random(99)
    digest = sha256()
    for _ in range(20):
        tree = random_tree(rng, 4)
        gathered = gather(tree, *measured(tree, rng, 0.2))
        for part in (*gathered, *downward_pass(tree, gathered), integer_estimates(tree, gathered, negative=False)):
            digest.update(part.astype("<f8").tobytes())
    z, s = (np.array([rng.uniform(0.1, 9) for _ in range(999)]) for _ in "zs")
    digest.update(_spread(5000, z, s).astype("<f8").tobytes())
    assert digest.hexdigest() == "e5a88fa8401219289cee8ee0c83dec7f8ee9d52a419c505125ef3032e0b90979"


@pytest.mark.parametrize(
    ("levels", "leaves"), [(("zone", "floor"), [0, 1, 2]), (("floor",), [1, 0, 1]), (("building",), [0, 0, 0])]
)
def test_a_zone_counts_at_the_leaf_of_its_lowest_level(levels: tuple[str, ...], leaves: list[int]) -> None:
    assert leaf_of_zone(["up", "down", "up"], levels).tolist() == leaves
