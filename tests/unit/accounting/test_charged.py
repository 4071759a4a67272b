"""What counts of a zone's day were charged, added up over the ticks by which a value can differ."""

from __future__ import annotations

from fractions import Fraction

import orjson
import pytest

from stream.accounting.charge_history import ChargeHistory, ChargeLine, attempt_of, line_name, release_of
from stream.accounting.count_exponent import count_exponent
from stream.accounting.state_json import decode_history, encode_history
from stream.records import DAY, MINUTE

TICK = 5 * MINUTE
MIDNIGHT = 20_000 * DAY
TODAY = (MIDNIGHT, MIDNIGHT + DAY)
LAPLACE = ChargeLine("laplace", 1, ("x", "y"))
DAY_LINE = ChargeLine("laplace", 1, ("x",), day=7)


def charged(*rows: tuple[str, ChargeLine, range, dict[str, str]]) -> ChargeHistory:
    """Return what lines were charged for these ticks of the day."""
    state = ChargeHistory()
    for name, line, ticks, paid in rows:
        for tick in ticks:
            state.note(MIDNIGHT + tick * TICK, name, line, {who: Fraction(epsilon) for who, epsilon in paid.items()})
    return state


def exponent(
    state: ChargeHistory,
    zone: str = "x",
    n: int = 12,
    *,
    audiences: frozenset[str] | None = None,
    span: tuple[int, int] = TODAY,
) -> Fraction:
    return count_exponent(state, zone, span, n, audiences)


def test_a_day_costs_its_n_dearest_windows() -> None:
    state = charged(("r/v/1", LAPLACE, range(288), {"a": "1"}), ("r/v/2", LAPLACE, range(3), {"a": "0.5"}))
    assert exponent(state) == 12 + Fraction(3, 2)
    assert exponent(state, n=2) == 3
    assert exponent(charged(("r/v/1", LAPLACE, range(5), {"a": "1"}))) == 5


def test_a_rename_within_the_day_costs_no_more_than_one_release_all_day() -> None:
    state = charged(("r/v/1", LAPLACE, range(144), {"a": "1"}), ("s/w/1", LAPLACE, range(144, 288), {"a": "1"}))
    assert exponent(state) == 12


def test_releases_attempts_and_names_of_one_window_add_up() -> None:
    rows = [(line_name(name, "v", n), LAPLACE, range(288), {"a": "1"}) for name in "rs" for n in (1, 2)]
    assert exponent(charged(*rows)) == 48


def test_readers_of_one_line_pay_what_their_coalition_costs() -> None:
    pegasus = ChargeLine("pegasus", 1, ("x",))
    state = charged(("r/v/1", pegasus, range(1), {"a": "1", "b": "0.5"}))
    assert exponent(state) == Fraction("0.8") + Fraction("0.2") * Fraction("1.5")
    assert exponent(state, audiences=frozenset("b")) == Fraction("0.5")
    assert exponent(state, audiences=frozenset("c")) == 0


@pytest.mark.parametrize(("n", "windows", "cost"), [(12, 288, 3), (13, 288, 4), (12, 4, 1), (1, 288, 1)])
def test_uniform_costs_one_epsilon_for_every_w_of_the_ticks(n: int, windows: int, cost: int) -> None:
    state = charged(("r/v/1", ChargeLine("uniform", 4, ("x",)), range(windows), {"a": "1"}))
    assert exponent(state, n=n) == cost


@pytest.mark.parametrize("mechanism", ["sample", "ba"])
@pytest.mark.parametrize(
    ("n", "windows", "cost"), [(12, 288, 12), (80, 288, 72), (12, 4, 1), (12, 5, 2), (1, 288, 1), (288, 288, 72)]
)
def test_what_spends_all_at_once_may_do_so_at_each_of_the_ticks(
    mechanism: str, n: int, windows: int, cost: int
) -> None:
    """The ticks by which a value differs may be those at which it publishes, w windows apart."""
    state = charged(("r/v/1", ChargeLine(mechanism, 4, ("x",)), range(windows), {"a": "1"}))
    assert exponent(state, n=n) == cost


def test_a_w_event_release_begun_anew_pays_again() -> None:
    sample = ChargeLine("sample", 24, ("x",))
    assert exponent(charged(("r/v/1", sample, range(9), {"a": "1"}), ("r/w/1", sample, range(9, 20), {"a": "1"}))) == 2


def test_only_windows_of_the_day_and_of_the_zone_count() -> None:
    state = charged(("r/v/1", LAPLACE, range(-3, 300), {"a": "1"}))
    assert exponent(state, "z") == 0
    assert exponent(state, span=(MIDNIGHT - DAY, MIDNIGHT)) == 3
    assert exponent(state, span=(MIDNIGHT + DAY, MIDNIGHT + 2 * DAY)) == 12


def test_lines_that_do_not_cover_the_zone_cost_it_nothing_in_a_window_of_one_that_does() -> None:
    elsewhere = ChargeLine("laplace", 1, ("y",))
    state = charged(("r/v/1", LAPLACE, range(9), {"a": "1"}), ("s/v/1", elsewhere, range(9), {"a": "2"}))
    assert exponent(state, "x") == 9
    assert exponent(state, "y") == 27


def test_a_refusal_is_no_charge_and_a_charge_can_be_taken_back() -> None:
    state = charged(("r/v/1", LAPLACE, range(2), {"a": "0"}), ("s/v/1", LAPLACE, range(2), {"a": "1"}))
    assert set(state.charged_at(MIDNIGHT)) == {"s/v/1"}
    state.undo(MIDNIGHT, "s/v/1")
    assert exponent(state) == 1


def test_it_is_the_same_after_its_byte_form() -> None:
    state = charged(
        ("r/v/1", LAPLACE, range(5), {"a": "1", "b": "0.1"}),
        ("s/v/1", ChargeLine("ba", 4, ("x",)), range(2), {"a": "1"}),
    )
    again = decode_history(orjson.loads(orjson.dumps(encode_history(state))))
    assert again == state
    assert exponent(again) == exponent(state)


def test_windows_at_one_distance_that_cost_the_same_are_one_row_of_a_snapshot() -> None:
    state = charged(("r/v/1", LAPLACE, range(288), {"a": "1"}))
    state.note(MIDNIGHT + 300 * TICK, "r/v/1", LAPLACE, {"a": Fraction(1)})
    assert [row[:3] for row in encode_history(state)["windows"]] == [
        (MIDNIGHT, TICK, 288),
        (MIDNIGHT + 300 * TICK, 0, 1),
    ]


def test_windows_are_remembered_until_every_local_day_that_holds_them_has_closed() -> None:
    state = charged(("r/v/1", LAPLACE, range(288), {"a": "1"}))
    state.forget(MIDNIGHT + 2 * DAY + 14 * 60 * MINUTE)
    assert exponent(state) == 12
    state.note(MIDNIGHT + 3 * DAY, "s/v/1", LAPLACE, {"a": Fraction(1)})
    state.forget(MIDNIGHT + 3 * DAY)
    assert (set(state.lines), len(state.days)) == ({"s/v/1"}, 1)
    state.forget(MIDNIGHT + 8 * DAY)
    assert (state.lines, state.days) == ({}, {})


def test_a_line_that_pays_for_several_windows_costs_as_much_as_its_dearest() -> None:
    """A second reader joins in the tenth window of the day."""
    one, both = {"a": "0.5"}, {"a": "0.5", "b": "2"}
    for line, cost in ((ChargeLine("uniform", 24, ("x",)), 2), (DAY_LINE, 2)):
        assert exponent(charged(("r/v/1", line, range(10), one), ("r/v/1", line, range(10, 288), both))) == cost


def test_the_lines_of_whole_days_are_told_from_those_of_windows() -> None:
    state = charged(("r/v/1", LAPLACE, range(9), {"a": "1"}), ("s/v/1/7", DAY_LINE, range(5, 9), {"a": "1"}))
    assert state.days_charged_in(TODAY) == {"s/v/1/7": DAY_LINE}
    assert state.days_charged_in((MIDNIGHT, MIDNIGHT + 5 * TICK)) == {}


def test_a_span_ends_with_the_last_instant_in_it() -> None:
    state = charged(("s/v/1/7", DAY_LINE, range(1), {"a": "1"}))
    assert state.days_charged_in((MIDNIGHT - DAY + 1, MIDNIGHT + 1)) == {"s/v/1/7": DAY_LINE}
    assert state.days_charged_in((MIDNIGHT - DAY + 1, MIDNIGHT)) == {}


def test_the_name_of_a_line_says_of_which_release_and_attempt_it_is_and_of_which_whole_day() -> None:
    names = [line_name("r", "v", 2), line_name("r", "v", 2, 7)]
    assert names == ["r/v/2", "r/v/2/7"]
    assert [(release_of(name), attempt_of(name)) for name in names] == [("r", 2)] * 2
