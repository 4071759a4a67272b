"""Laws of noise as attackers use them: exact ones against the samplers' law, learnt ones against SciPy's."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from stream.errors import UsageError
from stream.lab.attackers.beliefs import Floats
from stream.lab.attackers.likelihoods import NoiseDistribution, learn, scott
from stream.mechanisms.gaussian import thresholds
from stream.mechanisms.noise import pmf
from stream.records import NoiseKind

LINE = np.arange(-400, 401)


def masses(kind: NoiseKind, scale: float) -> Floats:
    return np.exp(NoiseDistribution(kind, scale).log(LINE))


class TestExact:
    def test_laplace_is_the_samplers(self) -> None:
        assert masses("laplace", 1.25) == pytest.approx(pmf(Fraction(4, 5), LINE), rel=1e-12)

    def test_gaussian_is_the_samplers(self) -> None:
        tails = [masses("gaussian", 3.0)[np.abs(LINE) >= k].sum() for k in range(1, 15)]
        assert tails == pytest.approx(thresholds(Fraction(9))[:14] / 2.0**63, rel=1e-9)

    @pytest.mark.parametrize("kind", ["laplace", "gaussian"])
    def test_masses_add_up_to_one(self, kind: NoiseKind) -> None:
        assert masses(kind, 3.0).sum() == pytest.approx(1.0, abs=1e-9)

    @pytest.mark.parametrize("law", [NoiseDistribution("laplace", 0.01), NoiseDistribution("gaussian", 0.5)])
    def test_what_all_but_cannot_be_has_a_finite_logarithm(self, law: NoiseDistribution) -> None:
        far = law.log(np.array([-10_000, 10_000]))
        assert np.isfinite(far).all()
        assert far.max() < law.log(np.array(0))


class TestLearnt:
    RNG = np.random.default_rng(5)
    COUNTS = np.repeat([0, 1, 4], 60)
    VALUES = COUNTS + RNG.integers(-3, 4, len(COUNTS))

    @pytest.mark.parametrize("width", [None, 0.1, 0.7])
    @pytest.mark.parametrize("count", [0, 1, 4])
    def test_each_count_has_scipys_density(self, count: int, width: float | None) -> None:
        law = learn(self.COUNTS, self.VALUES, width, -4, 9, 4)
        found = np.exp(law.log_likelihood(np.arange(-4, 10), 4)[:, count])
        theirs = gaussian_kde(self.VALUES[count == self.COUNTS].astype(float), bw_method=width)
        assert found == pytest.approx(theirs(np.arange(-4, 10)), rel=1e-9, abs=1e-300)

    def test_the_default_width_is_scipys(self) -> None:
        assert scott(88) == pytest.approx(gaussian_kde(np.arange(88.0)).scotts_factor(), rel=1e-12)

    def test_a_count_never_seen_has_the_noise_of_the_nearest(self) -> None:
        law = learn(self.COUNTS, self.VALUES, None, -10, 20, 9)
        query = np.arange(-2, 8)
        assert law.log_likelihood(query + 3, 9)[:, 7].tolist() == law.log_likelihood(query, 9)[:, 4].tolist()

    def test_what_was_always_the_same_is_not_taken_for_certain(self) -> None:
        """A smoothed value is 0 in every quiet window; SciPy has no density there."""
        law = learn(np.zeros(50, dtype=np.int64), np.zeros(50, dtype=np.int64), 0.1, -5, 5, 0)
        found = law.log_likelihood(np.arange(-5, 6), 0)[:, 0]
        assert np.isfinite(found).all()
        assert found.argmax() == 5
        assert found.min() > -1e4, "as if half a person's noise had been seen"

    def test_values_beyond_the_table_are_taken_for_its_ends(self) -> None:
        law = learn(self.COUNTS, self.VALUES, None, -4, 9, 4)
        assert law.log_likelihood(np.array([99]), 4).tolist() == law.log_likelihood(np.array([9]), 4).tolist()

    def test_nothing_to_learn_from_is_refused(self) -> None:
        with pytest.raises(UsageError, match="at least one"):
            learn(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), None, 0, 1, 1)
