"""Every kind of count release through the real release stage: its charges and records."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from stream.errors import PolicyError
from stream.keys import LaboratoryKeys
from stream.mechanisms.filter.step import LARGEST_CAPACITY
from stream.mechanisms.grouper import SENSITIVITY
from stream.mechanisms.noise import SMALLEST_EPSILON, half_width_95, sum_half_width_95
from stream.operators import scan
from stream.policy.mechanisms import LARGEST_STATE, SMALLEST_PART, SMALLEST_PEGASUS
from stream.records import MINUTE, CountCharge, OccupancyWindow, Published, WindowCharges
from stream.release.account_stage import account_stage
from stream.release.queries import pruned_half_widths, repeated_half_widths
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT

TICK = 5 * MINUTE
START = 1_520_000_100 * 1_000_000 // TICK * TICK
KEYS = LaboratoryKeys(b"r" * 32, "ledger", b"a" * 32)

SITE = """
[site.dbh]
sources = ["10.0.0.1"]

[[site.dbh.zones]]
id = "101"
floor = "1"
capacity = 20
access_points = ["02:00:00:00:01:01"]

[[site.dbh.zones]]
id = "102"
floor = "1"
capacity = 20
access_points = ["02:00:00:00:01:02"]

[[site.dbh.zones]]
id = "201"
floor = "2"
capacity = 20
access_points = ["02:00:00:00:02:01"]

[[audience]]
name = "a"
[[audience]]
name = "b"

[[release]]
name = "r"
query = "count"
"""


def policy(release: str) -> Policy:
    return load_policy(SITE + release, "p.toml")


def windows(n: int, counts: tuple[int, int, int] = (5, 7, 0)) -> list[OccupancyWindow]:
    return [OccupancyWindow("dbh", START + i * TICK, counts, Fraction(1)) for i in range(n)]


def released(release: str, n: int, counts: tuple[int, int, int] = (5, 7, 0)) -> list[dict[str, Any]]:
    _, outputs = scan(ReleaseStage(policy(release), "dbh", KEYS), windows(n, counts))
    return [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and o.topic != AUDIT]


def entries(release: str, n: int) -> list[dict[str, Any]]:
    _, outputs = scan(ReleaseStage(policy(release), "dbh", KEYS), windows(n))
    return [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and o.topic == AUDIT]


UNIFORM = 'mechanism = "uniform"\nw = 4\nepsilon = { a = "1" }\n'
SAMPLE = 'mechanism = "sample"\nw = 4\nepsilon = { a = "100" }\n'
BA = 'mechanism = "ba"\nw = 4\nepsilon = { a = "1" }\n'
STATES = (
    'mechanism = "laplace"\nstates = { low = ["101", "102"], all = ["101", "102", "201"] }\nepsilon = { a = "100" }\n'
)
SHARES = """mechanism = "laplace"
levels = ["zone", "floor", "building"]
shares = { zone = "0.5", floor = "0.25", building = "0.25" }
epsilon = { a = "100", b = "50" }
"""
QUERIES = """mechanism = "pegasus"
epsilon = { a = "100" }
queries = [
  { name = "sum", kind = "window-sum", windows = 3 },
  { name = "move", kind = "jump", windows = 2, threshold = 50 },
  { name = "quiet", kind = "low", windows = 2, threshold = 3 },
]
"""


@pytest.mark.parametrize("release", [UNIFORM, SAMPLE, BA])
def test_w_event_mechanism_charges_a_w_th_of_epsilon_each_window(release: Any) -> None:
    found = entries(release, 9)
    epsilon = Fraction(found[0]["epsilon"])
    assert [entry["nano"] for entry in found] == [int(epsilon / 4 * 10**9)] * 9


def test_sample_publishes_once_in_w_windows_and_repeats() -> None:
    found = [record["values"] for record in released(SAMPLE, 8)]
    assert found[0] == found[1] == found[3]
    assert found[4] == found[7]
    assert found[0] == {"101": 5, "102": 7, "201": 0}


def test_states_are_counted_instead_of_zones_at_a_share_of_epsilon() -> None:
    (record,) = released(STATES, 1)
    assert record["values"] == {"low": 12, "all": 12}
    assert record["noise_scale"] == {"low": 0.02, "all": 0.02}


@pytest.mark.parametrize(("mechanism", "alone"), [("uniform", 4.0), ("sample", 1.0)])
def test_states_share_epsilon_with_w_event_mechanisms_too(mechanism: Any, alone: Any) -> None:
    """A device in two states changes two counts, so each has half of epsilon."""
    release = f'mechanism = "{mechanism}"\nw = 4\nepsilon = {{ a = "1" }}\n'
    overlapping = 'states = { low = ["101", "102"], all = ["101", "102", "201"] }\n'
    apart = 'states = { low = ["101"], high = ["102", "201"] }\n'
    (shared,), (whole,) = released(release + overlapping, 1), released(release + apart, 1)
    assert shared["noise_scale"] == {"low": 2 * alone, "all": 2 * alone}
    assert whole["noise_scale"] == {"low": alone, "high": alone}


def test_levels_with_shares_have_their_own_noise_and_add_up() -> None:
    for record in released(SHARES, 5):
        values, levels = record["values"], record["levels"]
        assert levels["floor"] == {"1": values["101"] + values["102"], "2": values["201"]}
        assert levels["building"] == sum(values.values())
        assert record["noise_scale"]["101"] == pytest.approx(2 / float(record["epsilon"]))


def test_queries_cost_nothing_and_have_topics_of_their_own() -> None:
    _, outputs = scan(ReleaseStage(policy(QUERIES), "dbh", KEYS), windows(4))
    topics = [o.topic for o in outputs if isinstance(o, Published)]
    assert topics.count("tacet.private.a.sum.v1") == 4
    assert topics.count(AUDIT) == 4
    records = [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and ".sum." in o.topic]
    assert [record["spend"] for record in records] == ["0"] * 4
    assert [record["reason"] for record in records] == ["too_early", "too_early", None, None]
    assert records[-1]["values"] == {"101": 15, "102": 21, "201": 0}


def summed(release: str, windows: int) -> str:
    return f'{release}queries = [{{ name = "sum", kind = "window-sum", windows = {windows} }}]\n'


def test_every_record_of_ba_tells_the_noise_of_the_publication_it_repeats() -> None:
    """The first has one unit, 1/8 of epsilon; one that comes later has absorbed more."""
    records = [*released(BA, 9), *released(BA, 9, (90, 7, 0))]
    report = {(record["noise_scale"]["101"], record["half_width_95"]["101"]) for record in records}
    assert all(width >= half_width_95(1 / Fraction(scale)) for scale, width in report)
    assert {record["half_width_kind"] for record in records} == {"posterior"}
    assert (8.0, 24.0) in report
    sums = [record for record in released(summed(BA, 2), 9) if record["release"] == "sum"][1:]
    counts = [record for record in released(summed(BA, 2), 9) if record["release"] == "r"][1:]
    assert [each["noise_scale"] for each in sums] == [each["noise_scale"] for each in counts]


def test_a_sum_of_repeated_values_has_their_noise_as_often_as_they_are_repeated() -> None:
    record = released(summed(SAMPLE.replace("100", "1"), 4), 4)[-1]
    assert record["release"] == "sum"
    assert record["half_width_95"]["101"] == 4 * half_width_95(Fraction(1)) == 12


def test_a_sum_of_repeated_values_has_the_band_of_their_noise_however_fast_counts_change() -> None:
    release = summed(SAMPLE.replace("100", "1"), 4)
    _, outputs = scan(ReleaseStage(policy(release), "dbh", KEYS), [*windows(4), *windows(12, (90, 7, 0))[4:]])
    records = [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and o.topic != AUDIT]
    count, total = records[-2:]
    assert (count["release"], total["release"]) == ("r", "sum")
    assert count["half_width_95"]["101"] > half_width_95(Fraction(1))
    assert (total["half_width_95"]["101"], total["half_width_kind"]) == (4 * half_width_95(Fraction(1)), "noise")


def test_a_sum_over_levels_with_shares_has_the_noise_of_the_zones_share() -> None:
    record = next(each for each in reversed(released(summed(SHARES, 3), 3)) if each["audience"] == "b")
    single = released(SHARES, 1)[-1]
    assert record["noise_scale"] == single["noise_scale"] == {"101": 0.04, "102": 0.04, "201": 0.04}
    assert record["half_width_kind"] == "noise"


def test_a_sum_over_the_filter_tells_the_width_of_noise_and_says_so() -> None:
    release = summed('mechanism = "filter"\nepsilon = { a = "0.5" }\n', 3)
    record = released(release, 3)[-1]
    assert (record["mechanism"], record["half_width_kind"]) == ("filter/window-sum", "noise")
    assert record["half_width_95"]["101"] == sum_half_width_95(Fraction(1, 2), 3)
    assert released(release, 3)[-2]["half_width_kind"] == "posterior"


def test_a_sum_that_is_not_told_has_no_half_width() -> None:
    early = next(record for record in released(summed(SAMPLE, 4), 1) if record["release"] == "sum")
    assert (early["values"], early["half_width_95"], early["reason"]) == (None, None, "too_early")


def test_widths_of_sums_add_up_where_errors_are_the_same_and_by_squares_where_they_are_not() -> None:
    values, widths = np.array([[7, 7, 9, 9, 4]]), np.array([[3, 3, 3, 3, 3]])
    assert repeated_half_widths(values[:, :2], widths[:, :2]) == [6]
    assert repeated_half_widths(values, widths) == [12]  # √(8² + 8² + 4²), a half-width of 1 more each
    assert repeated_half_widths(values[:, 1:3], np.array([[0, 0]])) == [0]
    assert pruned_half_widths(np.array([[5, 0, 0, 6]]), np.array([[3, 10, 10, 4]])) == [25]


def test_jumps_and_low_signals_are_told_from_released_values() -> None:
    _, outputs = scan(ReleaseStage(policy(QUERIES), "dbh", KEYS), [
        *windows(2), OccupancyWindow("dbh", START + 2 * TICK, (80, 7, 0), Fraction(1)),
        OccupancyWindow("dbh", START + 3 * TICK, (5, 7, 0), Fraction(1)),
    ])  # fmt: skip
    found = [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and o.topic != AUDIT]
    moves = [record["values"] for record in found if record["release"] == "move"]
    assert moves[1:] == [
        {"101": 0, "102": 0, "201": 0},
        {"101": 1, "102": 0, "201": 0},
        {"101": -1, "102": 0, "201": 0},
    ]
    quiet = [record["values"] for record in found if record["release"] == "quiet"]
    assert quiet[1] == {"101": 0, "102": 0, "201": 1}


PRUNED = SHARES.replace(', b = "50"', "") + 'prune = { share = "0.1", below = 5 }\n'


@pytest.mark.parametrize(
    "release", [UNIFORM, SAMPLE, BA, STATES, SHARES, QUERIES, *(summed(each, 3) for each in (SAMPLE, BA, PRUNED))]
)
def test_state_survives_its_byte_form_at_every_window(release: Any) -> None:
    stage = ReleaseStage(policy(release), "dbh", KEYS)
    _, expected = scan(stage, windows(7))
    state, made = stage.initial(), []
    for window in windows(7):
        state, outputs = stage.step(stage.decode(stage.encode(state)), window)
        made += outputs
    assert made == expected


def test_budget_of_a_w_event_release_pays_in_w_ths() -> None:
    found = entries(UNIFORM + 'daily_budget = { a = "1" }\n', 6)
    assert [entry["outcome"] for entry in found] == ["released"] * 4 + ["budget"] * 2


def test_charges_say_for_how_many_windows_an_epsilon_pays() -> None:
    _, outputs = scan(ReleaseStage(policy(BA), "dbh", KEYS), windows(1))
    (spent,) = [o for o in outputs if isinstance(o, WindowCharges)]
    [charge] = spent.charges
    assert isinstance(charge, CountCharge)
    assert (charge.epsilon, charge.w) == (Fraction(1), 4)


def accounts(release: str, n: int) -> list[dict[str, Any]]:
    made = policy(release)
    _, outputs = scan(ReleaseStage(made, "dbh", KEYS), windows(n))
    stage = account_stage(made, "dbh", laboratory=True)
    _, records = scan(stage, [o for o in outputs if isinstance(o, WindowCharges)])
    return [orjson.loads(record.value)["audiences"] for record in records]


def test_account_of_a_w_event_release_adds_one_epsilon_for_every_begun_w_windows() -> None:
    found = accounts(BA, 9)
    assert [record["a"]["device_total"] for record in found] == ["1"] * 4 + ["2"] * 4 + ["3"]
    assert [record["a"]["presence_tuple"] for record in found] == ["1"] * 9
    assert found[-1]["a"]["device_w_event"] == "3"
    assert {record["b"]["device_total"] for record in found} == {"0"}


def test_a_w_event_release_that_begins_anew_pays_anew() -> None:
    made = policy(SAMPLE)
    stage = account_stage(made, "dbh", laboratory=True)
    _, outputs = scan(ReleaseStage(made, "dbh", KEYS), windows(2))
    first, second = [o for o in outputs if isinstance(o, WindowCharges)]
    state, _ = stage.step(stage.initial(), first)
    paid = second.charges[0]
    assert isinstance(paid, CountCharge)
    state.end_runs([replace(paid, reason="waiting")])
    _, (record,) = stage.step(stage.decode(stage.encode(state)), second)
    assert orjson.loads(record.value)["audiences"]["a"]["device_total"] == "200"


def test_a_new_policy_does_not_make_sample_publish_before_its_time() -> None:
    stage = ReleaseStage(policy(SAMPLE), "dbh", KEYS)
    state, _ = scan(stage, windows(2))
    kept = ReleaseStage(policy(SAMPLE + 'daily_budget = { a = "1000" }\n'), "dbh", KEYS)
    later = [OccupancyWindow("dbh", START + i * TICK, (50, 50, 50), Fraction(1)) for i in range(2, 5)]
    _, outputs = scan(kept, later, kept.migrate(stage.encode(state), {}))
    values = [orjson.loads(o.value)["values"]["101"] for o in outputs if isinstance(o, Published) and o.topic != AUDIT]
    assert values == [5, 5, 50]


SHARED_BA = 'mechanism = "ba"\nw = 4\nshares = { zone = "1" }\nepsilon = { a = "1" }\n'
LEVELS_ALONE = 'mechanism = "filter"\nlevels = ["floor"]\nepsilon = { a = "1" }\n'
BUILDING = 'mechanism = "laplace"\nlevels = ["building"]\nshares = { building = "1" }\nepsilon = { a = "1" }\n'
QUERY = 'queries = [{ name = "sum", kind = "window-sum", windows = 3 }]\n'
PRUNE = 'prune = { share = "0.1", below = 5 }\n'
GAUSSIAN = 'mechanism = "laplace"\nnoise = "gaussian"\nepsilon = { a = "1" }\n'


@pytest.mark.parametrize(
    ("release", "rule"),
    [
        ('mechanism = "ba"\nw = 4\nepsilon = { a = "1", b = "1" }\n', "ba must have one audience, got 2"),
        ('mechanism = "uniform"\nepsilon = { a = "1" }\n', "w must be given with uniform, sample and ba"),
        ('mechanism = "laplace"\nw = 4\nepsilon = { a = "1" }\n', "w must be given with uniform, sample and ba"),
        (SHARES.replace('"0.25"', '"0.2"'), "shares must name every level, and add up to 1"),
        (SHARED_BA, "shares must be used with laplace, pegasus or filter, got ba"),
        (SHARES.replace('"zone", ', "").replace('zone = "0.5", ', ""), "shares must name every level, and add up to 1"),
        (LEVELS_ALONE, "levels must include 'zone', of whose values the others are sums without shares, got floor"),
        (BUILDING + QUERY, "queries must be used with levels that include 'zone'"),
        (BUILDING.replace("laplace", "filter") + PRUNE, "prune must not be used with filter"),
        ('mechanism = "laplace"\nlevels = []\nepsilon = { a = "1" }\n', "must contain at least one of zone, floor"),
        (GAUSSIAN, "noise = 'gaussian' must be used with unit = 'device_day', whose price decides"),
        (SHARES + 'prune = { share = "0.1", below = 5 }\n', "prune must have one audience, got 2"),
        (STATES.replace('"201"', '"999"'), "states.all must consist of zones of the release, got '999'"),
        (QUERIES.replace("threshold = 50", "threshold = 0"), "jump must compare at least 2 windows"),
        (QUERIES.replace('name = "sum"', 'name = "r"'), "release and query names must be unique, got r twice"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(release: Any, rule: Any) -> None:
    with pytest.raises(PolicyError, match=rule.replace(".", r"\.").replace("(", r"\(")):
        policy(release)


def smallest(mechanism: str, epsilon: str, more: str) -> str:
    return f'mechanism = "{mechanism}"\nepsilon = {{ a = "{epsilon}" }}\n{more}\n'


THRICE = 'states = { p = ["101"], q = ["101", "102"], r = ["101", "201"] }'
LEVELS = 'levels = ["zone", "floor"]\nshares = { zone = "0.999", floor = "0.001" }'
TESTS = 'levels = ["zone", "floor"]\nshares = { zone = "0.5", floor = "0.5" }\nprune = { share = "0.01", below = 3 }'


@pytest.mark.parametrize(
    ("enough", "too_little", "rule"),
    [
        (
            ("ba", "0.000004032", "w = 2016"), ("ba", "0.000004031", "w = 2016"),
            "epsilon.a must be at least 0.000004032 with w = 2016, got 0.000004031",
        ),
        (
            ("uniform", "0.00000001", "w = 5"), ("uniform", "0.000000009", "w = 5"),
            "epsilon.a must be at least 0.00000001 with w = 5, got 0.000000009",
        ),
        (
            ("laplace", "0.000000003", THRICE), ("laplace", "0.000000002", THRICE),
            "epsilon.a must be at least 0.000000003 with a zone in 3 states, got 0.000000002",
        ),
        (
            ("pegasus", "0.00015", THRICE), ("pegasus", "0.000149999", THRICE),
            "epsilon.a must be at least 0.00015 with a zone in 3 states, got 0.000149999",
        ),
        (
            ("ba", "0.00000006", f"w = 10\n{THRICE}"), ("ba", "0.00000005", f"w = 10\n{THRICE}"),
            "epsilon.a must be at least 0.00000006 with w = 10 with a zone in 3 states, got 0.00000005",
        ),
        (
            ("pegasus", "0.05", LEVELS), ("pegasus", "0.049", LEVELS),
            "shares.floor must leave at least 0.00005 of epsilon.a, got 0.000049",
        ),
        (
            ("laplace", "0.000001", LEVELS), ("laplace", "0.0000009", LEVELS),
            "shares.floor must leave at least 0.000000001 of epsilon.a, got 0.0000000009",
        ),
        (
            ("laplace", "0.0000001", TESTS), ("laplace", "0.00000009", TESTS),
            "prune.share must leave each test at least 0.000000001 of epsilon.a, got 0.0000000009",
        ),
    ],
)  # fmt: skip
def test_an_epsilon_whose_smallest_part_is_too_small_for_the_noise_is_refused_with_the_policy(
    enough: Any, too_little: Any, rule: Any
) -> None:
    accepted = policy(smallest(*enough))
    ReleaseStage(accepted, "dbh", KEYS)
    with pytest.raises(PolicyError, match=r"^p\.toml: release\[0\] \(name 'r', line \d+\): ") as refused:
        policy(smallest(*too_little))
    assert rule in str(refused.value)


def test_the_smallest_part_of_an_epsilon_is_what_the_sampler_can_draw() -> None:
    assert SMALLEST_PART == SMALLEST_EPSILON
    assert SMALLEST_PEGASUS >= SMALLEST_PART * 5 * 4 * SENSITIVITY
    assert LARGEST_STATE == LARGEST_CAPACITY


def test_a_state_without_zones_is_refused_with_the_policy() -> None:
    with pytest.raises(
        PolicyError,
        match=r"^p\.toml: release\[0\] \(name 'r', line \d+\): states\.low must have at least one zone, got none",
    ):
        policy(STATES.replace('low = ["101", "102"]', "low = []"))


def test_a_state_larger_than_the_filters_largest_grid_is_refused_with_the_policy() -> None:
    states = STATES.replace("laplace", "filter")
    policy(states)
    wide = (SITE + states).replace("capacity = 20", "capacity = 20\nmax_count = 600000")
    with pytest.raises(PolicyError, match=r"release 'r': states\.low must count at most 1048576 .*, got 1200000"):
        load_policy(wide, "p.toml")
