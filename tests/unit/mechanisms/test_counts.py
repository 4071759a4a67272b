from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from stream.errors import DataError, UsageError
from stream.mechanisms.base import CountMechanism, Parameters, TickInput, Values, WeekSlot
from stream.mechanisms.exact import Ints
from stream.mechanisms.grouper import GroupItem, average, james_stein, median, publishable
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.mechanisms.noise_parameters import NoiseParameter, gaussian_noise, laplace_noise, noise_chain
from stream.mechanisms.pegasus import Pegasus
from stream.mechanisms.registry import ReleaseContext, count_mechanism, mechanism_of, release_counts, revised_counts
from stream.policy.mechanisms import MECHANISMS as REGISTRY
from stream.records import DAY, MINUTE

F = Fraction
ZONES = ("2011", "2065", "lobby")
TIMES = DAY - 60 * MINUTE + 5 * MINUTE * np.arange(80)
"""An hour before midnight to over five hours after."""


def day_key(day: int) -> bytes:
    return b"day" + day.to_bytes(4, "big") * 8


def slot(end: int) -> WeekSlot:
    minute = end // MINUTE % 1440
    return WeekSlot(minute // 30, minute // 60, end // DAY % 7 in (2, 3))


NAMING = ReleaseContext("dbh", "occupancy", ZONES, day_key, slot)
Chosen = tuple[str, str, NoiseParameter]
MECHANISMS: list[Chosen] = [
    ("laplace", "median", laplace_noise(F(1))),
    ("pegasus", "average", laplace_noise(F(1))),
    ("pegasus", "median", laplace_noise(F(3))),
    ("pegasus", "james-stein", laplace_noise(F(1, 2))),
    ("filter", "median", laplace_noise(F(1, 2))),
    ("laplace", "median", gaussian_noise(F(9))),
    ("filter", "median", gaussian_noise(F(9))),
]
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: f"{m[0]}-{m[1]}-{m[2].kind}")


def made(mechanism: Chosen) -> CountMechanism:
    name, smoother, noise = mechanism
    return mechanism_of(name, Parameters(noise, (30, 12, 30), smoother))


def table(seed: int = 1) -> Ints:
    rng = Random(seed)
    return np.array([[rng.choice([3, 3, 3, 9]), rng.randrange(2), rng.randrange(20)] for _ in TIMES])


def streamed(mechanism: CountMechanism, counts: Ints) -> tuple[list[Values], list[bytes]]:
    """The stream form: one window at a time, the state through its bytes, groups closed at a new key day."""
    data, values = mechanism.encode(mechanism.initial()), []
    days: list[bytes] = []
    for end, row in zip(TIMES.tolist(), counts, strict=True):
        state = mechanism.decode(data)
        key = day_key((end - 5 * MINUTE) // DAY)
        if days and days[-1] != key:
            state = mechanism.pause(state)
        days.append(key)
        context = Context("dbh", "occupancy", end, 1, ZONES)
        law = mechanism.noise
        coarser = replace(law, exact=law.exact / 7 if law.kind == "laplace" else 7 * law.exact)
        noise = noise_chain(key, context, counts_digest(row), [law, coarser], 3)[law]
        state, [value] = mechanism.step(state, TickInput(row, noise, key, context, slot(end)))
        values.append(value)
        data = mechanism.encode(state)
    return values, days


@each_mechanism
def test_batch_form_equals_stream_form_in_which_every_state_goes_through_its_bytes(
    mechanism: Chosen,
) -> None:
    values, widths = release_counts(made(mechanism), NAMING, TIMES, table())
    expected, days = streamed(made(mechanism), table())
    assert len(set(days)) == 2
    assert values.tolist() == [v.values.tolist() for v in expected]
    assert widths.tolist() == [v.half_width.tolist() for v in expected]


@each_mechanism
def test_release_repeats_and_has_noise(mechanism: Chosen) -> None:
    values, _ = release_counts(made(mechanism), NAMING, TIMES, table())
    assert (values == release_counts(made(mechanism), NAMING, TIMES, table())[0]).all()
    assert (values != table()).any()


@each_mechanism
def test_a_later_count_changes_nothing_earlier(mechanism: Chosen) -> None:
    changed = table()
    changed[50] += 40
    before, _ = release_counts(made(mechanism), NAMING, TIMES, table())
    after, _ = release_counts(made(mechanism), NAMING, TIMES, changed)
    assert (before[:50] == after[:50]).all()
    assert (before[50] != after[50]).any()


@pytest.mark.parametrize("field", ["site", "release", "attempt", "zones", "day_key"])
def test_noise_changes_with_the_naming(field: str) -> None:
    others: dict[str, Any] = {
        "site": "icf",
        "release": "x",
        "attempt": 2,
        "zones": ("a", "b", "c"),
        "day_key": lambda _: b"other",
    }
    laplace = made(MECHANISMS[0])
    one, _ = release_counts(laplace, NAMING, TIMES, table())
    other, _ = release_counts(laplace, replace(NAMING, **{field: others[field]}), TIMES, table())
    assert (one != other).mean() > 0.3


def test_laplace_is_not_clamped() -> None:
    values, _ = release_counts(made(MECHANISMS[0]), NAMING, TIMES, 0 * table())
    assert (values < 0).any()


@each_mechanism
def test_half_widths_are_those_of_the_noise_or_of_the_posterior(mechanism: Chosen) -> None:
    stage = made(mechanism)
    _, widths = release_counts(stage, NAMING, TIMES, table())
    if stage.half_width_kind == "noise":
        assert (widths == stage.noise.half_width_95).all()
    else:
        assert stage.half_width_kind == "posterior"
        assert (widths <= 30).all()
        assert len(np.unique(widths)) > 2


@pytest.mark.parametrize("mechanism", [MECHANISMS[place] for place in (0, 4, 5, 6)])
def test_only_the_sum_of_count_and_noise_is_read_where_no_grouper_is_paid(
    mechanism: Chosen,
) -> None:
    stage = made(mechanism)
    one, other = stage.initial(), stage.initial()
    for end, row in zip(TIMES.tolist(), table(), strict=True):
        item = NAMING.input_of(stage, end, row)
        one, [values] = stage.step(one, item)
        other, [same] = stage.step(other, item._replace(counts=row + item.noise, noise=0 * row))
        assert values.values.tolist() == same.values.tolist()
    assert stage.encode(one) == stage.encode(other)


@each_mechanism
def test_values_change_with_noise_alone(mechanism: Chosen) -> None:
    stage = made(mechanism)
    item = NAMING.input_of(stage, int(TIMES[0]), np.array([10, 10, 10]))
    published = {
        tuple(stage.step(stage.initial(), item._replace(noise=np.full(3, noise)))[1][0].values.tolist())
        for noise in (-4, 0, 4)
    }
    assert len(published) == 3


def test_smoothed_and_filtered_values_are_never_negative() -> None:
    for mechanism in [*MECHANISMS[1:5], MECHANISMS[6]]:
        values, _ = release_counts(made(mechanism), NAMING, TIMES, 0 * table())
        assert (values >= 0).all()


@pytest.mark.parametrize(("name", "rule"), [("average", average), ("median", median), ("james-stein", james_stein)])
def test_pegasus_publishes_the_smoother_asked_for_over_its_groups(name: str, rule: object) -> None:
    pegasus = Pegasus(3, F(2), name)
    state = pegasus.initial()
    for end, row in zip(TIMES.tolist(), table(3), strict=True):
        item = NAMING.input_of(pegasus, end, row)
        rho, nu = pegasus.grouper.draw(item.key, item.context, state, row)
        _, [groups] = pegasus.grouper.step(state, GroupItem(row, row + item.noise, rho, nu))
        state, [values] = pegasus.step(state, item)
        assert values.values.tolist() == publishable(rule(groups)).tolist()  # type: ignore[operator]


def test_groups_of_pegasus_are_those_of_the_true_counts_whatever_the_noise_on_them() -> None:
    pegasus = Pegasus(3, F(2))
    quiet, loud = pegasus.initial(), pegasus.initial()
    for place, (end, row) in enumerate(zip(TIMES.tolist(), table(3), strict=True)):
        item = NAMING.input_of(pegasus, end, row)
        quiet, _ = pegasus.step(quiet, item._replace(noise=0 * row))
        loud, _ = pegasus.step(loud, item._replace(noise=0 * row + 10_000 * (-1) ** place))
        assert quiet.size.tolist() == loud.size.tolist()


def test_pegasus_spends_four_fifths_on_its_noise() -> None:
    assert made(("pegasus", "median", laplace_noise(F(1)))).noise == laplace_noise(F(4, 5))
    for name in ("laplace", "filter"):
        assert made((name, "median", laplace_noise(F(1)))).noise == laplace_noise(F(1))


def test_a_pause_closes_the_groups_of_pegasus_and_leaves_the_filter_alone() -> None:
    for mechanism in (MECHANISMS[2], MECHANISMS[4]):
        stage, state = made(mechanism), made(mechanism).initial()
        for end, row in zip(TIMES[:9].tolist(), table(), strict=False):
            state, _ = stage.step(state, NAMING.input_of(stage, end, row))
        before = stage.encode(state)
        after = stage.encode(stage.pause(state))
        assert (after == before) == (mechanism[0] == "filter")
        assert (after == stage.encode(stage.initial())) == (mechanism[0] == "pegasus")


def test_groups_end_with_the_key_day_of_the_windows_start() -> None:
    assert NAMING.key_day(DAY) == 0
    assert NAMING.key_day(DAY + 5 * MINUTE) == 1


def test_progress_is_the_number_of_finished_windows() -> None:
    finished = list[int]()
    release_counts(made(MECHANISMS[0]), NAMING, TIMES[:3], table()[:3], finished.append)
    revised_counts(made(MECHANISMS[4]), NAMING, TIMES[:3], table()[:3], "1h", finished.append)
    assert finished == [1, 2, 3, 1, 2, 3]


def test_only_filtered_values_are_revised() -> None:
    with pytest.raises(UsageError, match="revise must be used with filter"):
        revised_counts(made(MECHANISMS[0]), NAMING, TIMES[:3], table()[:3], "1h")


def test_an_epsilon_is_that_of_one_window_unless_more_are_asked_for() -> None:
    assert count_mechanism("uniform", epsilon=F(1), max_counts=[5]).noise == laplace_noise(F(1))
    assert count_mechanism("uniform", epsilon=F(1), max_counts=[5], windows=4).noise == laplace_noise(F(1, 4))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match=r"mechanism must be one of .* got 'gauss'"):
        count_mechanism("gauss", epsilon=F(1), max_counts=[5])
    with pytest.raises(UsageError, match=r"smoother must be one of .* got 'mean'"):
        count_mechanism("pegasus", epsilon=F(1), max_counts=[5], smoother="mean")


@pytest.mark.parametrize("name", [name for name in REGISTRY if name not in {"laplace", "filter"}])
def test_gaussian_noise_is_refused_where_no_proof_says_what_a_day_of_it_costs(name: str) -> None:
    with pytest.raises(UsageError, match=f"noise must be laplace with {name}, got gaussian"):
        mechanism_of(name, Parameters(gaussian_noise(F(400)), (5,), windows=2))


def test_parameters_with_gaussian_noise_have_no_pure_epsilon() -> None:
    with pytest.raises(UsageError, match="pure epsilon"):
        assert Parameters(gaussian_noise(F(400)), (5,)).epsilon


def test_epsilon_too_small_for_the_grouper_is_refused_before_the_first_window() -> None:
    count_mechanism("laplace", epsilon=F(1, 10**6), max_counts=[5])
    with pytest.raises(UsageError, match="epsilon"):
        count_mechanism("pegasus", epsilon=F(1, 10**6), max_counts=[5])


@pytest.mark.parametrize(
    ("times", "counts", "rule"),
    [
        (TIMES[:2], table()[:3], "shape"),
        (TIMES[:2], table()[:2, :2], "shape"),
        (TIMES[:2], -1 - table()[:2], "at least 0"),
        (TIMES[:2], table()[:2].astype(float), "64-bit integers"),
        (TIMES[[1, 1]], table()[:2], "ascending"),
    ],
)
def test_a_table_that_breaks_a_rule_is_refused(times: Ints, counts: Ints, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        release_counts(made(MECHANISMS[0]), NAMING, times, counts)


def test_laplace_has_no_state() -> None:
    with pytest.raises(DataError):
        made(MECHANISMS[0]).decode(b"x")
