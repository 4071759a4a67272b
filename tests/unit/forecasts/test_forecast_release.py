"""Forecasts of a release: a topic of their own, free, from published records alone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from stream.errors import DataError, PolicyError
from stream.keys import LaboratoryKeys
from stream.operators import scan
from stream.records import HOUR, Published
from stream.release.backfill import BackfillStage
from stream.release.forecasts import ForecastState, forecast_streams
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy
from stream.schemas import AUDIT, ForecastRecord, parse_time, private_topic, rfc3339
from tests.support.forecasts import MONDAY, TABLE, after, fed, given, history, stream_of, with_forecast
from tests.support.people_models import HALLS, small_policy
from tests.support.small_building import SITE
from tests.unit.people.test_people_release import TICK, windows

KEYS = LaboratoryKeys(b"p" * 32, "ledger", b"a" * 32)
TOPIC, COUNTS = (private_topic("facilities", name) for name in ("halls-forecast", "halls"))


def released(policy: Policy, n: int, **more: Any) -> list[Published]:
    _, outputs = scan(ReleaseStage(policy, SITE, KEYS), windows(n, **more))
    return [each for each in outputs if isinstance(each, Published)]


def week(day: int, hour: int) -> int:
    """40 on working days from 9 to 17, 4 otherwise."""
    return 40 if day % 7 < 5 and 9 <= hour < 17 else 4


def at(record: dict[str, Any], moment: str, part: str = "forecast") -> int | None:
    value: int | None = record[part]["building"][record["hours"].index(rfc3339(parse_time(moment)))]
    return value


def test_a_record_follows_the_last_window_of_each_hour_and_says_what_it_is_of() -> None:
    outputs = released(with_forecast(), 9)
    found = [orjson.loads(each.value) for each in outputs if each.topic == TOPIC]
    assert [record["window_end"] for record in found] == ["2026-03-02T21:00:00Z", "2026-03-02T22:00:00Z"]
    counts = {orjson.loads(each.value)["release_id"] for each in outputs if each.topic == COUNTS}
    for record in found:
        assert record["of"] in counts
        assert (record["spend"], record["mechanism"], record["values"]) == ("0", "laplace/forecast", None)
        assert (record["released"], record["reason"]) == (False, "history")
        ForecastRecord.model_validate(record)


def test_forecasts_cost_nothing_and_leave_all_other_bytes_as_they_are() -> None:
    """Policies differ, so only the policy's version may."""
    policy = with_forecast()
    outputs, plain = released(policy, 9), released(small_policy(), 9)
    version, old = policy.version.encode(), small_policy().version.encode()
    others = [each.value.replace(version, old) for each in outputs if each.topic not in {TOPIC, AUDIT}]
    assert others == [each.value for each in plain if each.topic != AUDIT]
    entries = [orjson.loads(each.value) for each in outputs if each.topic == AUDIT]
    assert not any("forecast" in entry["release_id"] for entry in entries)


def test_the_same_released_values_of_another_world_give_the_same_forecasts() -> None:
    """A stream receives published bytes alone: those of another world's counts, forecast again, are its forecasts."""
    policy = with_forecast()
    outputs = released(policy, 9, counts=(3, 1, 9, 2, 0, 1))
    [stream] = forecast_streams(policy, SITE)
    _, again = scan(stream, [each for each in outputs if each.topic == COUNTS])
    assert again == [each for each in outputs if each.topic == TOPIC]


def test_an_audience_without_a_forecast_gets_none() -> None:
    outputs = released(with_forecast(), 9)
    assert {each.topic for each in outputs if each.topic.endswith("forecast.v1")} == {TOPIC}


def test_the_record_of_midnight_has_the_next_seven_days_and_later_ones_the_rest_of_the_day() -> None:
    found = after(stream_of(), 28, week, hours=9)
    midnight, nine = found[0], found[-1]
    assert len(midnight["hours"]) == 8 * 24
    assert midnight["hours"][0] == midnight["window_end"] == "2026-02-02T08:00:00Z"
    assert nine["hours"] == midnight["hours"][9:24]
    assert (at(midnight, "2026-02-02T15:00-08:00"), at(midnight, "2026-02-07T15:00-08:00")) == (40, 4)
    assert nine["forecast"]["floor"]["1"] == nine["forecast"]["building"]
    assert nine["forecast"]["floor"]["2"] == [None] * 15
    assert nine["released"]


def test_an_unusual_day_moves_the_hours_that_follow_and_not_what_is_usual() -> None:
    """Every fourth day has half as many devices all day, and so has today."""

    def count(day: int, hour: int) -> int:
        return week(day, hour) // 2 if day % 4 == 0 else week(day, hour)

    noon = after(stream_of(), 60, count, hours=12)[-1]
    assert at(noon, "2026-03-06T15:00-08:00", "usual") == 40
    assert at(noon, "2026-03-06T15:00-08:00") in range(18, 24)


@pytest.mark.parametrize(("days", "tomorrow", "in_a_week"), [(15, None, None), (16, 40, None), (23, 40, 40)])
def test_nothing_is_forecast_before_there_is_a_band(
    days: int, tomorrow: int | None, in_a_week: int | None
) -> None:  # fmt: skip
    """Usual values need seven days, a band nine days that were held back; further ahead, as many days more."""
    [midnight] = after(stream_of(), days, lambda day, hour: 40)
    assert midnight["released"] == (tomorrow is not None)
    assert midnight["forecast"]["building"][15] == tomorrow
    assert midnight["forecast"]["building"][7 * 24 + 15] == in_a_week


def test_closed_days_are_like_sundays() -> None:
    [midnight] = after(stream_of(TABLE + 'closed = ["2026-02-04"]\n'), 28, week)
    assert at(midnight, "2026-02-03T12:00-08:00") == 40
    assert at(midnight, "2026-02-04T12:00-08:00") == 4
    assert at(midnight, "2026-02-05T12:00-08:00") == 40


def test_an_hour_without_half_of_its_windows_is_unknown() -> None:
    stream = stream_of()
    state = stream.initial()
    for quarter, value in ((1, 8), (2, None), (3, None), (4, None), (5, 8), (6, 12), (7, None), (8, None)):
        state, _ = stream.step(state, given(MONDAY + quarter * HOUR // 4, value, HOUR // 4))
    [means] = [nodes["building"] for nodes in state.days.values()]
    assert means[:3] == [None, 10_000, None]


def test_a_third_of_the_windows_of_an_hour_is_less_than_half() -> None:
    """The window that ends with an hour is one of this hour's."""
    [stream] = forecast_streams(with_forecast(tick="20min"), SITE)
    state = stream.initial()
    for third, value in ((1, None), (2, None), (3, 8), (4, 8), (5, 12), (6, None), (7, None)):
        state, _ = stream.step(state, given(MONDAY + third * HOUR // 3, value, HOUR // 3))
    [means] = [nodes["building"] for nodes in state.days.values()]
    assert means[:2] == [None, 10_000]


def test_the_state_forgets_old_days_and_survives_a_restart() -> None:
    stream, many = stream_of(), history(90, week)
    state, _ = fed(stream, week, range(90 * 24, 90 * 24 + 3), many)
    assert len(state.days) == 71
    again = stream.decode(stream.encode(state))
    assert again == state
    hours = range(90 * 24 + 3, 90 * 24 + 6)
    assert fed(stream, week, hours, state)[1] == fed(stream, week, hours, again)[1]


@pytest.mark.parametrize("data", [b"[]", b"{", b'[1,2,[],[[3,[["building",[1]]]]]]', b"[1,2,3,4]"])
def test_bytes_that_are_no_state_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="forecast state: must be"):
        stream_of().decode(data)


def test_the_hour_that_summer_time_skips_is_none_of_the_hours() -> None:
    """Clocks go from 2 to 3 on 8 March 2026."""
    stream = stream_of()
    state = ForecastState()
    saturday = parse_time("2026-03-07T00:00-08:00")
    _, [made] = stream.step(state, given(saturday, 4, HOUR // 4))
    hours = orjson.loads(made.value)["hours"]
    assert len(hours) == len(set(hours)) == 8 * 24 - 1
    assert hours == sorted(hours)


def test_a_backfill_names_forecasts_among_its_records() -> None:
    stage = BackfillStage(with_forecast(), SITE, KEYS)
    [whole] = windows(1, start=MONDAY + 12 * HOUR - TICK)
    [other] = windows(1, start=MONDAY + 12 * HOUR)
    assert f"{SITE}/halls-forecast/facilities/{rfc3339(MONDAY + 12 * HOUR)}" in stage.ids(whole)
    assert not any("forecast" in name for name in stage.ids(other))


# The table of the policy.


def test_an_icalendar_file_gives_the_days_of_its_years() -> None:
    table = TABLE + 'closed = "holidays.ics"\nyears = [2026]\n'
    policy = with_forecast(table=table, closed="2025-12-25\n2026-12-25\n2026-01-01\n2027-01-01\n")
    assert policy.forecast[0].closed == ("2026-01-01", "2026-12-25")
    assert policy.version != with_forecast(table=table, closed="2026-12-25").version
    assert Policy.from_document(policy.document()).version == policy.version


@pytest.mark.parametrize("head", ["[forecast]", "[[forecast]]"])
def test_a_file_gives_the_closed_days_of_one_forecast_or_of_a_list(head: str) -> None:
    table = TABLE.replace("[forecast]", head) + 'closed = "h.ics"\nyears = [2020, 2050]\n'
    policy = with_forecast(table=table, closed="2019-12-31\n2020-01-01\n2050-12-31\n2051-01-01\n")
    assert policy.forecast[0].closed == ("2020-01-01", "2050-12-31")


@pytest.mark.parametrize("year", [2019, 2051])
def test_closed_days_are_of_the_years_2020_to_2050(year: int) -> None:
    with pytest.raises(PolicyError, match=rf"years.*must be at (least 2020|most 2050), got {year}"):
        with_forecast(table=TABLE + f'closed = "h.ics"\nyears = [{year}]\n')


def test_a_policy_without_forecast_is_the_same_document_as_before_there_was_one() -> None:
    assert b"forecast" not in small_policy().document()


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        (TABLE.replace(SITE, "other"), "forecast: site must be one of the policy"),
        (TABLE.replace("halls", "rooms"), "forecast: must be of a count release and one of its audiences"),
        (TABLE.replace("facilities", "nobody"), "forecast: must be of a count release and one of its audiences"),
        (TABLE + 'closed = "h.ics"\n', r"forecast.years: must list the years"),
        (TABLE + 'closed = "h.txt"\nyears = [2026]\n', r"forecast.closed: must be dates, or an iCalendar file"),
        (TABLE + 'closed = ["2026-02-30"]\n', "must be a date such as '2026-12-24'"),
        (TABLE.replace("[forecast]", "[[forecast]]") * 2, "forecast must be given once for each site"),
    ],
)
def test_what_no_forecast_can_be_made_of_is_refused(table: str, rule: str) -> None:
    with pytest.raises(PolicyError, match=rule):
        with_forecast(table=table)


def test_a_release_of_zones_alone_has_no_forecast() -> None:
    zones = HALLS.replace('levels = ["zone", "floor", "building"]\n', "")
    with pytest.raises(PolicyError, match="must publish floors or the building"):
        with_forecast(zones)


def test_a_release_called_like_the_forecast_of_another_is_refused() -> None:
    with pytest.raises(PolicyError, match="release and query names must be unique"):
        with_forecast(HALLS + HALLS.replace('"halls"', '"halls-forecast"'))
