import random
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from hashlib import shake_256

import numpy as np
import pytest

from stream.errors import UsageError
from stream.mechanisms import noise
from stream.mechanisms.exact import evaluate, floor_scaled
from stream.mechanisms.inversion import below, bernoulli, by_table, refinement, words
from stream.mechanisms.noise import discrete_laplace, half_width_95, invert, pmf, std, thresholds
from stream.mechanisms.noise_labels import label
from stream.mechanisms.osdprr import show

KEY = bytes(range(32))
F = Fraction


def tail(epsilon: Fraction, k: int, digits: int = 400) -> Decimal:
    """Pr[|Z| >= k], written out a second time."""
    with localcontext() as context:
        context.prec = digits
        e = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        return 2 * (-e * k).exp() / (1 + (-e).exp())


def by_definition(epsilon: Fraction, first: int, further: list[int]) -> int:
    """|Z| = #{k >= 1: U < p_k}, the digits of U written out and each k tried in turn."""
    numerator, bits = first, 63
    for word in further:
        numerator, bits = numerator << 64 | word, bits + 64
    with localcontext() as context:
        context.prec = 400
        u, k = Decimal(numerator) / (1 << bits), 0
        while u < tail(epsilon, k + 1):
            k += 1
        return k


def never(index: int) -> Iterator[int]:
    raise AssertionError(f"draw {index} asked for more digits")


# Words


def test_words_are_one_keyed_sponge_over_length_prefixed_parts() -> None:
    parts = b"".join(len(part).to_bytes(8, "big") + part for part in (b"tacet.words.1", b"key", b"label"))
    stream = shake_256(parts).digest(24)
    expected = [int.from_bytes(stream[i : i + 8], "big") for i in (0, 8, 16)]
    assert words(b"key", b"label", 3).tolist() == expected


def test_words_change_with_the_boundary_between_key_and_label() -> None:
    assert words(b"ke", b"ylabel", 1) != words(b"key", b"label", 1)


def test_further_digits_of_a_draw_are_words_of_their_own() -> None:
    expected = []
    for place in (0, 1):
        parts = (b"tacet.digits.1", KEY, label(b"label", 5, place))
        stream = shake_256(b"".join(len(part).to_bytes(8, "big") + part for part in parts))
        expected.append(int.from_bytes(stream.digest(8), "big"))
    digits = refinement(KEY, b"label")(5)
    assert [next(digits), next(digits)] == expected


def test_more_words_begin_with_the_same_words() -> None:
    assert (words(KEY, b"label", 100)[:7] == words(KEY, b"label", 7)).all()


# Thresholds


@pytest.mark.parametrize(
    ("epsilon", "length", "first"),
    [
        ("0.8", 55, [5718961402957943925, 2569695003017465236, 1154638393803038266]),
        ("0.5", 88, [6964396094736529934, 4224119757840635365, 2562058143428249909]),
        ("0.1", 438, [8762587358261559784, 7928716920563929625, 7174199746741090462]),
    ],
)
def test_thresholds_have_their_published_values(epsilon: str, length: int, first: list[int]) -> None:
    table = thresholds(F(epsilon))
    assert len(table) == length
    assert table[:3].tolist() == first
    assert table[-1] == 0 < table[-2]


def test_every_threshold_of_a_small_epsilon_is_the_floor_of_many_decimals() -> None:
    epsilon = F(1, 1000)
    table = thresholds(epsilon)
    places = [0, 1, 1000, 30_000, len(table) - 2, len(table) - 1]
    assert table[places].tolist() == [int(Fraction(tail(epsilon, k + 1)) * 2**63) for k in places]
    assert (np.diff(table) <= 0).all()


def test_floor_takes_more_digits_where_the_number_is_next_to_an_integer() -> None:
    def almost_three() -> Decimal:
        return 3 - (-Decimal(700)).exp()

    assert floor_scaled(almost_three) == 2
    assert floor_scaled(lambda: 6 - almost_three()) == 3


def test_a_table_that_draws_share_is_written_by_none() -> None:
    with pytest.raises(ValueError, match="read-only"):
        thresholds(F(1))[0] = 0


# Inversion: fast path, slow path, tail


@pytest.mark.parametrize("epsilon", [F("0.8"), F(5), F(1, 10)])
@pytest.mark.parametrize("place", [0, 1, 7])
@pytest.mark.parametrize("digit", [0, 1 << 63, (1 << 64) - 1])
def test_word_on_a_threshold_is_decided_by_further_digits(epsilon: Fraction, place: int, digit: int) -> None:
    threshold = int(thresholds(epsilon)[place])
    drawn = np.array([threshold], dtype=np.uint64)
    result = invert(drawn, epsilon, lambda _: iter([digit, digit, digit]))
    assert result.tolist() == [by_definition(epsilon, threshold, [digit, digit, digit])]


@pytest.mark.parametrize("epsilon", [F("0.8"), F(1, 1000)])
@pytest.mark.parametrize("place", [0, 3])
def test_words_beside_a_threshold_are_decided_at_once(epsilon: Fraction, place: int) -> None:
    threshold = int(thresholds(epsilon)[place])
    drawn = np.array([threshold - 1, threshold + 1], dtype=np.uint64)
    assert invert(drawn, epsilon, never).tolist() == [place + 1, place]


def test_refined_digits_equal_to_the_next_of_the_threshold_are_refined_again() -> None:
    epsilon, k = F("0.8"), 2
    exact = int(Fraction(tail(epsilon, k)) * 2 ** (63 + 64))
    drawn = np.array([exact >> 64], dtype=np.uint64)
    same = exact & ((1 << 64) - 1)
    assert invert(drawn, epsilon, lambda _: iter([same, 0])).tolist() == [k]
    assert invert(drawn, epsilon, lambda _: iter([same, (1 << 64) - 1])).tolist() == [k - 1]


@pytest.mark.parametrize("epsilon", [F("0.8"), F(1, 1000), F(1, 10**6)])
def test_tail_goes_on_without_end_where_all_digits_are_zero(epsilon: Fraction) -> None:
    zero = np.array([0, 1 << 63], dtype=np.uint64)
    near, far = [
        invert(zero, epsilon, lambda _, n=n: iter([0] * n + [1 << 63]))  # type: ignore[misc]
        for n in (0, 2)
    ]
    assert near[0] == -near[1]
    for drawn, bits in ((near[0], 64), (far[0], 64 * 3)):
        k = int(drawn)
        assert tail(epsilon, k) > Decimal(2) ** -bits > tail(epsilon, k + 1)


def test_table_and_ladder_map_a_uniform_number_to_the_same_draw() -> None:
    epsilon = F(1, 700)
    uniform = (words(KEY, b"two ways", 200_000) >> np.uint64(1)).astype(np.int64)
    from_table, on_threshold = by_table(uniform, thresholds(epsilon))
    by_ladder, unsure = noise._by_ladder(uniform, noise._ladder(epsilon))
    sure = ~(on_threshold | unsure)
    assert (from_table == by_ladder)[sure].all()
    assert sure.mean() > 0.9999


@pytest.mark.parametrize("epsilon", [F(1, 3000), F(1, 123_456)])
def test_ladder_leaves_to_exact_digits_what_floats_cannot_tell(epsilon: Fraction) -> None:
    rng = random.Random(7)
    ladder = noise._ladder(epsilon)
    rungs = len(ladder.fine) - 1
    for k in [
        1,
        rungs - 1,
        rungs,
        rungs + 1,
        5 * rungs,
        *rng.choices(range(1, 12 * epsilon.denominator), k=40),
    ]:
        exact = int(Fraction(tail(epsilon, k)) * 2**63)
        for offset in (-1, 0, 1):
            uniform = np.array([exact + offset])
            magnitude, unsure = noise._by_ladder(uniform, ladder)
            truth = k if offset < 0 else k - 1
            assert unsure[0] or magnitude[0] == truth
            drawn = invert(uniform.astype(np.uint64), epsilon, lambda _: iter([(1 << 64) - 1] * 9))
            assert drawn[0] == truth


def test_ladder_draws_further_digits_where_the_first_are_too_few() -> None:
    epsilon, few = F(1, 3000), noise._FEW
    _, unsure = noise._by_ladder(np.array([1, 1000, few // 3, few - 1]), noise._ladder(epsilon))
    assert unsure.all(), "63 digits, of which so few are not 0, give no relative error of 2**-42"


def test_sign_is_the_top_bit() -> None:
    low = words(KEY, b"sign", 1000) >> np.uint64(1)
    positive = invert(low, F("0.3"), never)
    assert (invert(low | np.uint64(1 << 63), F("0.3"), never) == -positive).all()
    assert (positive >= 0).all()


def test_draws_repeat_under_one_label_and_change_with_key_and_label() -> None:
    draw = discrete_laplace(KEY, b"label", F("0.1"), 50)
    assert (draw == discrete_laplace(KEY, b"label", F("0.1"), 50)).all()
    assert (draw != discrete_laplace(KEY, b"other", F("0.1"), 50)).any()
    assert (draw != discrete_laplace(KEY[:-1], b"label", F("0.1"), 50)).any()


def test_no_two_draws_share_their_further_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All first digits 0, so that further ones decide every draw: independent, they hardly ever agree.

    Pr[at most 3 different magnitudes of 64] < 1e-12, and key and label are fixed.
    """
    monkeypatch.setattr(noise, "words", lambda key, name, n: np.zeros(n, dtype=np.uint64))
    drawn = discrete_laplace(KEY, label("zones"), F(1), 64)
    assert len(set(drawn.tolist())) > 3
    assert drawn.tolist() != discrete_laplace(KEY, label("other"), F(1), 64).tolist()
    assert drawn.tolist() != discrete_laplace(bytes(32), label("zones"), F(1), 64).tolist()


def test_draws_are_pinned() -> None:
    assert discrete_laplace(KEY, label("pin"), F(4, 5), 10).tolist() == PINNED


PINNED = [-3, 0, 0, 0, 0, 2, 0, 1, 0, 1]


@pytest.mark.parametrize("epsilon", [0.5, 1, "1"])
def test_epsilon_that_is_not_exact_is_refused(epsilon: object) -> None:
    with pytest.raises(UsageError, match="exact Fraction"):
        discrete_laplace(KEY, b"label", epsilon, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [F(0), F(-1), F(1, 10**10)])
def test_epsilon_beyond_the_sampler_is_refused(epsilon: Fraction) -> None:
    with pytest.raises(UsageError, match="at least"):
        discrete_laplace(KEY, b"label", epsilon, 1)


def test_large_epsilon_gives_no_noise_but_for_a_zero_word() -> None:
    assert not discrete_laplace(KEY, b"label", F(200), 1000).any()


# The law


def test_pmf_sums_to_one_and_falls_by_e_to_minus_epsilon() -> None:
    p = pmf(F("0.4"), np.arange(-200, 201))
    assert p.sum() == pytest.approx(1, abs=1e-14)
    assert p[201] / p[200] == pytest.approx(np.exp(-0.4), rel=1e-12)


@pytest.mark.parametrize("epsilon", [F(5), F(1), F("0.8"), F("0.5"), F("0.1"), F("0.01")])
def test_half_width_is_the_smallest_that_keeps_95_percent(epsilon: Fraction) -> None:
    width = half_width_95(epsilon)
    assert tail(epsilon, width + 1) <= Decimal("0.05") < tail(epsilon, width)


def test_standard_deviation_has_its_known_values() -> None:
    assert std(F("0.8")) ** 2 == pytest.approx(2.9635, abs=5e-5)
    assert std(F("0.08")) ** 2 == pytest.approx(312.333, abs=5e-4)
    assert std(F("0.01")) ** 2 == pytest.approx(19999.83, abs=5e-3)


# Bernoulli


@pytest.mark.parametrize(
    ("epsilon", "threshold"),
    [("0.1", 1755439794884062206), ("0.5", 7258228221132386316), ("1", 11660566172440666341)],
)
def test_bernoulli_threshold_has_its_published_value(epsilon: str, threshold: int) -> None:
    beside = np.array([threshold - 1, threshold + 1], dtype=np.uint64)
    assert below(beside, show(F(epsilon)), never).tolist() == [True, False]


def test_bernoulli_on_its_threshold_is_decided_by_further_digits() -> None:
    exact = floor_scaled(show(F(1)), 64 + 128)
    first, second, third = exact >> 128, exact >> 64 & ((1 << 64) - 1), exact & ((1 << 64) - 1)
    drawn = np.array([first], dtype=np.uint64)
    for further, truth in [
        ([second - 1], True),
        ([second + 1], False),
        ([second, third - 1], True),
        ([second, third + 1], False),
    ]:
        assert below(drawn, show(F(1)), lambda _, w=further: iter(w)).tolist() == [truth]  # type: ignore[misc]


def test_bernoulli_draws_of_one_label_are_nested() -> None:
    small, large = (bernoulli(KEY, b"coins", show(F(e)), 5000) for e in ("0.2", "1.5"))
    assert (small <= large).all()
    assert 0 < small.sum() < large.sum() < 5000


def test_evaluation_ignores_the_callers_decimal_context() -> None:
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 3, 5, -5
        value = evaluate(show(F(1, 10**6)), 50)
        table = thresholds.__wrapped__(F("0.8"))
    assert str(value).startswith("9.99999500000166666")
    assert (table == thresholds(F("0.8"))).all()
