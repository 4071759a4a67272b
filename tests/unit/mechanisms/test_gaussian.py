"""The discrete Gaussian sampler against its law, written out a second time in decimals."""

from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from stream.errors import UsageError
from stream.mechanisms import gaussian
from stream.mechanisms.gaussian import (
    LARGEST_VARIANCE,
    SMALLEST_VARIANCE,
    discrete_gaussian,
    half_width_95,
    invert,
    thresholds,
)
from stream.mechanisms.noise_labels import label

F = Fraction
KEY = bytes(range(32))
VARIANCES = [F(1, 4), F(2), F("21.854") ** 2, F(10**5, 3)]
SIGN = np.uint64(1 << 63)


@cache
def tails(variance: Fraction, digits: int = 200) -> list[Decimal]:
    """Pr[|Z| >= k] for k = 0, 1, …, each weight an exponential of its own."""
    with localcontext() as context:
        context.prec = digits
        half = Decimal(variance.denominator) / (2 * Decimal(variance.numerator))
        weights = [(-half * z * z).exp() for z in range(int(30 * float(variance) ** 0.5) + 30)]
        total = weights[0] + 2 * sum(weights[1:])
        sums, running = [], Decimal(0)
        for weight in reversed(weights[1:]):
            running += weight
            sums.append(2 * running / total)
        return [Decimal(1), *reversed(sums)]


def by_definition(variance: Fraction, first: int, further: list[int]) -> int:
    """|Z| = #{k >= 1: U < p_k}, each k tried in turn."""
    numerator, bits = first, 63
    for word in further:
        numerator, bits = numerator << 64 | word, bits + 64
    with localcontext() as context:
        context.prec = 200
        u = Decimal(numerator) / (1 << bits)
        return sum(u < tail for tail in tails(variance)[1:])


def never(index: int) -> Iterator[int]:
    raise AssertionError(f"draw {index} asked for more digits")


def first_digits(variance: Fraction, k: int, bits: int = 63) -> int:
    return int(Fraction(tails(variance)[k]) * 2**bits)


@pytest.mark.parametrize("variance", VARIANCES)
def test_every_threshold_is_the_floor_of_many_decimals(variance: Fraction) -> None:
    table = thresholds(variance)
    assert table.tolist() == [first_digits(variance, k) for k in range(1, len(table) + 1)]
    assert table[-1] == 0 < table[-2]


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("place", [0, 1, -2])
@pytest.mark.parametrize("digit", [0, 1 << 63, (1 << 64) - 1])
def test_word_on_a_threshold_is_decided_by_further_digits(variance: Fraction, place: int, digit: int) -> None:
    threshold = int(thresholds(variance)[place])
    drawn = np.array([threshold, threshold], dtype=np.uint64) | np.array([0, SIGN], dtype=np.uint64)
    magnitude = by_definition(variance, threshold, [digit, digit])
    assert invert(drawn, variance, lambda _: iter([digit] * 9)).tolist() == [magnitude, -magnitude]


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("place", [0, 2])
def test_words_beside_a_threshold_are_decided_at_once(variance: Fraction, place: int) -> None:
    threshold = int(thresholds(variance)[place])
    drawn = np.array([threshold - 1, threshold + 1], dtype=np.uint64)
    assert invert(drawn, variance, never).tolist() == [place + 1, place]


def test_refined_digits_equal_to_the_next_of_the_threshold_are_refined_again() -> None:
    variance, k = F(9), 4
    exact = first_digits(variance, k, 63 + 64)
    drawn = np.array([exact >> 64], dtype=np.uint64)
    same = exact & ((1 << 64) - 1)
    assert invert(drawn, variance, lambda _: iter([same, 0])).tolist() == [k]
    assert invert(drawn, variance, lambda _: iter([same, (1 << 64) - 1])).tolist() == [k - 1]


@pytest.mark.parametrize("variance", [F(1, 4), F(400)])
def test_tail_goes_on_without_end_where_all_digits_are_zero(variance: Fraction) -> None:
    zero = np.array([0, SIGN], dtype=np.uint64)
    for zeros, bits in ((0, 64), (2, 64 * 3)):
        drawn = invert(zero, variance, lambda _, n=zeros: iter([0] * n + [1 << 63]))  # type: ignore[misc]
        k = int(drawn[0])
        assert drawn.tolist() == [k, -k]
        assert tails(variance)[k] > Decimal(2) ** -bits > tails(variance)[k + 1]


def test_numbers_in_doubt_are_found_with_more_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the first tails said nothing beyond 63 digits: the table is the same."""
    true = thresholds.__wrapped__(F(9)).tolist()
    query: list[int] = []

    def doubtful(variance: Fraction, bits: int) -> list[int]:
        query.append(bits)
        found = gaussian_tails(variance, bits)
        return found if bits > 63 else [tail >> 192 << 192 for tail in found]

    gaussian_tails = gaussian._tails
    monkeypatch.setattr(gaussian, "_tails", doubtful)
    assert thresholds.__wrapped__(F(9)).tolist() == true
    assert query == [63, 126]


def test_draws_repeat_under_one_label_and_change_with_key_and_label() -> None:
    draw = discrete_gaussian(KEY, b"label", F(400), 50)
    assert (draw == discrete_gaussian(KEY, b"label", F(400), 50)).all()
    assert (draw != discrete_gaussian(KEY, b"other", F(400), 50)).any()
    assert (draw != discrete_gaussian(KEY[:-1], b"label", F(400), 50)).any()


def test_no_two_draws_share_their_further_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All first digits 0, so that further ones decide; key and label are fixed, so this fails always or never."""
    monkeypatch.setattr(gaussian, "words", lambda key, name, n: np.zeros(n, dtype=np.uint64))
    drawn = discrete_gaussian(KEY, label("zones"), F(10**6), 64)
    assert len(set(drawn.tolist())) > 3
    assert drawn.tolist() != discrete_gaussian(KEY, label("other"), F(10**6), 64).tolist()


@pytest.mark.pinned
def test_draws_are_pinned() -> None:
    assert discrete_gaussian(KEY, label("pin"), F("21.854") ** 2, 10).tolist() == PINNED


PINNED = [-39, 7, 6, 7, -1, 29, -5, 14, -3, 12]


@pytest.mark.parametrize("variance", [400.0, 400, "400"])
def test_variance_that_is_not_exact_is_refused(variance: object) -> None:
    with pytest.raises(UsageError, match="exact Fraction"):
        discrete_gaussian(KEY, b"label", variance, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("variance", [F(0), F(-1), SMALLEST_VARIANCE * F("0.99"), LARGEST_VARIANCE + 1])
def test_variance_beyond_the_sampler_is_refused(variance: Fraction) -> None:
    with pytest.raises(UsageError, match="variance must be from"):
        discrete_gaussian(KEY, b"label", variance, 1)


@pytest.mark.parametrize("variance", [SMALLEST_VARIANCE, LARGEST_VARIANCE])
def test_variances_at_the_ends_have_noise_of_their_size(variance: Fraction) -> None:
    drawn = discrete_gaussian(KEY, b"ends", variance, 1000)
    assert (np.abs(drawn) < 6 * float(variance) ** 0.5 + 1).all()
    assert drawn.any() == (variance > 1)


@pytest.mark.parametrize("variance", [*VARIANCES, F(1, 100), F(10**6)])
def test_half_width_is_the_smallest_that_keeps_95_percent(variance: Fraction) -> None:
    width = half_width_95(variance)
    shares = tails(variance, 40)
    assert shares[width + 1] <= Decimal("0.05") < shares[width]
