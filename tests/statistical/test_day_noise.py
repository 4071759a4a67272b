"""The noise of releases that are paid by the day, read from their records and nodes: its law, and what the law costs.

Functions of fixed keys, so that no test can fail by chance later; a right release would have failed at most once in a
million choices of keys, at each of its statistics. Twins 5 % off in scale have to fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from stream.keys import LaboratoryKeys
from stream.mechanisms.base import TickInput
from stream.mechanisms.exact import Ints
from stream.mechanisms.measured_tree import MeasuredTree
from stream.mechanisms.noise import pmf
from stream.policy.privacy_days import PrivacyDays
from stream.records import MINUTE, OccupancyWindow, Published
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, parse_time
from tests.statistical.chi_square import one_sample
from tests.statistical.test_gaussian_law import ALPHA, chi_square
from tests.support.day_policies import day_release, day_site, shared

F = Fraction
ZONES, FLOORS, WINDOWS = 200, 25, 300
"""60,000 values of zones, 7,500 of floors for each audience."""
K = 96
COUNT = 40
"""Bounded count of every zone: subtracted again."""
DAYS = PrivacyDays("04:00", "America/Los_Angeles")
START = parse_time("2026-03-03T04:00:00-08:00")
KEYS = LaboratoryKeys(b"d" * 32, "ledger", b"a" * 32)
BY_DAY, GAUSSIAN = day_release(noise="laplace"), day_release()
TREE = GAUSSIAN + shared(zone="0.25", floor="0.75")


def policy(release: str) -> Policy:
    zones = "".join(
        f'  {{ id = "{n}", floor = "{n % FLOORS:02d}", capacity = 300, access_points = ["02:00:00:00:01:{n:02x}"] }},\n'
        for n in range(ZONES)
    )
    return load_policy(
        '[site.dbh]\nsources = ["10.0.0.1"]\ntimezone = "America/Los_Angeles"\n'
        f"{day_site()}zones = [\n{zones}]\n"
        '[[audience]]\nname = "public"\n[[audience]]\nname = "facilities"\n' + release
    )


def records(release: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a bit more than a day, each window of which has the same bounded counts."""
    stage = ReleaseStage(policy(release), "dbh", KEYS)
    state = stage.initial()
    for number in range(1, WINDOWS + 1):
        end = START + number * 5 * MINUTE
        window = OccupancyWindow("dbh", end, (90,) * ZONES, F(1), DAYS.at(end), (COUNT,) * ZONES)
        state, made = stage.step(state, window)
        yield from (orjson.loads(out.value) for out in made if isinstance(out, Published) and out.topic != AUDIT)


Drawn = dict[str, tuple[float, Ints]]
"""Audience -> scale that its records name, and what was added to all counts, window after window."""


def drawn(release: str) -> Drawn:
    found: dict[str, tuple[float, list[int]]] = {}
    for record in records(release):
        (scale,) = set(record["noise_scale"].values())
        _, noise = found.setdefault(record["audience"], (scale, []))
        noise += [value - COUNT for value in record["values"].values()]
    return {audience: (scale, np.array(noise)) for audience, (scale, noise) in found.items()}


@pytest.fixture(scope="module")
def gaussian() -> Drawn:
    return drawn(GAUSSIAN)


def variance(scale: float) -> Fraction:
    """Return σ² of a record's σ: three digits of the calibration's grid."""
    return F(f"{scale * scale:.6g}")


@pytest.mark.parametrize("audience", ["public", "facilities"])
def test_what_a_day_release_adds_is_discrete_gaussian_of_the_scale_that_its_records_name(
    gaussian: Drawn, audience: str
) -> None:
    scale, noise = gaussian[audience]
    assert len(noise) == ZONES * WINDOWS
    assert chi_square(noise, variance(scale)) > ALPHA
    assert chi_square(noise, variance(scale) * F("0.95") ** 2) < ALPHA
    assert chi_square(noise, variance(scale) * F("1.05") ** 2) < ALPHA


def test_a_coarse_audience_has_the_fine_ones_noise_and_an_independent_gaussian(gaussian: Drawn) -> None:
    """Correlations of independent noise are 0 within 5 / √N, passed with probability 6e-7."""
    (coarse, public), (fine, facilities) = gaussian["public"], gaussian["facilities"]
    step = public - facilities
    left = variance(coarse) - variance(fine)
    assert chi_square(step, left) > ALPHA
    assert chi_square(step, left * F("0.95") ** 2) < ALPHA
    assert chi_square(step, left * F("1.05") ** 2) < ALPHA
    near = 5 / len(step) ** 0.5
    assert abs(np.corrcoef(step, facilities)[0, 1]) < near
    assert abs(np.corrcoef(public, facilities)[0, 1] - fine / coarse) < near


@pytest.mark.parametrize("audience", ["public", "facilities"])
def test_noise_of_one_zone_or_window_says_nothing_of_the_next(gaussian: Drawn, audience: str) -> None:
    _, noise = gaussian[audience]
    for apart in (1, ZONES, 2 * ZONES, 288 * ZONES):
        n = len(noise) - apart
        assert abs(np.corrcoef(noise[apart:], noise[:-apart])[0, 1]) < 5 / n**0.5


def test_what_a_laplace_day_adds_is_discrete_laplace_of_a_kth_of_its_epsilon() -> None:
    for audience, (scale, noise) in drawn(BY_DAY).items():
        epsilon = F({"public": 2, "facilities": 4}[audience], K)
        assert scale == pytest.approx(float(1 / epsilon))
        assert laplace_chi_square(noise, epsilon) > ALPHA
        assert laplace_chi_square(noise, epsilon * F("1.05")) < ALPHA
        assert laplace_chi_square(noise, epsilon * F("0.95")) < ALPHA


def laplace_chi_square(observed: Ints, epsilon: Fraction) -> float:
    """The p-value of Pearson's test against the exact law, in cells that expect 25 or more, tails joined."""
    wide = len(observed) * pmf(epsilon, np.arange(-1000, 1001))
    reach = int((wide[1000:] >= 25).sum()) - 1
    expected = wide[1000 - reach : 1001 + reach]
    expected[[0, -1]] += (len(observed) - expected.sum()) / 2
    return one_sample(observed, expected)


def test_every_level_of_a_tree_has_noise_of_its_own_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the levels are made to add up; of the day's price each takes its share of 1/σ²."""
    received: dict[float, list[Ints]] = {}
    noisy = MeasuredTree._noisy

    def listening(tree: MeasuredTree, item: TickInput) -> Ints:
        values = noisy(tree, item)
        for law, here in zip(tree.laws, tree.tree.levels, strict=True):
            received.setdefault(law.scale, []).append((values - tree.tree.sums(item.counts))[here])
        return values

    monkeypatch.setattr(MeasuredTree, "_noisy", listening)
    scales = {record["audience"]: record["noise_scale"] for record in records(TREE)}
    monkeypatch.undo()
    whole = {audience: scale for audience, (scale, _) in drawn(GAUSSIAN).items()}
    assert set(scales) == set(whole)
    noise = {scale: np.concatenate(each) for scale, each in received.items()}
    sizes = sorted((len(each), scale) for scale, each in noise.items())
    assert [size for size, _ in sizes] == [FLOORS * WINDOWS] * 2 + [ZONES * WINDOWS] * 2
    for share, level in ((F("0.75"), sizes[:2]), (F("0.25"), sizes[2:])):
        for (_, scale), own in zip(level, sorted(whole.values()), strict=True):
            assert scale**2 == pytest.approx(own**2 / float(share), rel=1e-9)
            law = F(scale * scale).limit_denominator(1000)
            assert chi_square(noise[scale], law) > ALPHA
            assert chi_square(noise[scale], law * (F("1.05") if share < F("0.5") else F("1.15")) ** 2) < ALPHA
    for here, there in zip(sizes[0::2], sizes[1::2], strict=True):
        assert here[1] != there[1]


# ---- what the law costs --------------------------------------------------------------------------------


def discrete_gaussian_law(variance: Fraction) -> np.ndarray:
    z = np.arange(-600, 601)
    weights = np.exp(-z * z / (2 * float(variance)))
    law: np.ndarray = weights / weights.sum()
    return law


def delta_of(law: np.ndarray, variance: Fraction, epsilon: float) -> float:
    """Return δ(ε) of K values of a law that change by one each, by adding up over all sums of the noise.

    ``law``, from -n to n, is the discrete Gaussian of a variance, or nearly so: the loss of a sum S is (2 S + K) / 2σ².
    """
    size = K * (len(law) - 1) + 1
    length = 1 << size.bit_length()
    sums = np.fft.irfft(np.fft.rfft(law, length) ** K, length)[:size]
    losses = (2 * (np.arange(size) - size // 2) + K) / (2 * float(variance))
    return float((sums * np.maximum(0, -np.expm1(np.minimum(epsilon - losses, 0)))).sum())


def test_the_scales_that_records_name_keep_a_day_to_its_price(gaussian: Drawn) -> None:
    """The coarse audience's law is that of the sum which it gets, not the one that it is said to be."""
    coarse, fine = (variance(gaussian[audience][0]) for audience in ("public", "facilities"))
    summed = np.convolve(discrete_gaussian_law(fine), discrete_gaussian_law(coarse - fine))
    for law, square, epsilon in ((discrete_gaussian_law(fine), fine, 4), (summed, coarse, 2)):
        assert 0.95e-6 < delta_of(law, square, epsilon) <= 1e-6
        finer = square * F("0.99") ** 2
        assert delta_of(discrete_gaussian_law(finer), finer, epsilon) > 1e-6
