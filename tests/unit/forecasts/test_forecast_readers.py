"""Readers of forecasts: types, frames, lines, MQTT, contracts, topics, the service, and files of closed days."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from connectors.calendars.reader import whole_days
from connectors.cli.options import read_policy
from connectors.cli.subscribe import one_line
from connectors.operations.policy.contracts import asyncapi, contract_files
from connectors.operations.policy.guarantee_figures import guarantee_figures
from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.policy_description import described_releases
from connectors.sinks.mqtt import messages
from connectors.storage.kafka.topics import topic_names
from connectors.subscribe.nodes import node_values
from stream.errors import PolicyError
from stream.schemas import ForecastRecord, private_topic
from tacet import frame, typed
from tests.support.forecasts import TABLE, after, stream_of, with_forecast
from tests.support.icalendar_files import calendar, event
from tests.support.people_models import HALLS, small_policy
from tests.support.released_store import count, give
from tests.support.small_building import SITE, policy_text


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """The records of a midnight and of each hour until nine."""
    return after(stream_of(), 28, lambda day, hour: 40 if 9 <= hour < 17 else 4, hours=9)


def test_a_record_of_a_forecast_has_its_own_type_and_no_counts(found: list[dict[str, Any]], tmp_path: Path) -> None:
    record = typed(found[0])
    assert isinstance(record, ForecastRecord)
    assert len(record.hours) == 192
    assert [*node_values(found[0])] == []
    assert messages("t", found[0], {}) == {}
    give(tmp_path, [count(1, {"a": 12}), found[0] | {"audience": "public"}])
    assert set(frame(store=tmp_path, audience="public").release) == {"occupancy"}


def test_a_line_says_what_is_forecast_of_the_first_hour(found: list[dict[str, Any]]) -> None:
    assert "forecast: floor 1 40 (" in one_line(found[-1])
    assert "building 40 (" in one_line(found[-1])


def test_records_follow_the_published_schema(found: list[dict[str, Any]]) -> None:
    schema = orjson.loads(contract_files(small_policy())["forecast-record.schema.json"])
    for record in found:
        jsonschema.validate(record, schema)


def test_what_policy_show_prints_for_programs_names_the_forecasts() -> None:
    named = {"site": SITE, "release": "halls-forecast", "of": "halls", "reader": "facilities"}
    assert guarantee_figures(with_forecast()).to_json()["forecasts"] == [named]
    assert "forecasts" not in guarantee_figures(small_policy()).to_json()


def test_forecasts_have_a_topic_a_channel_and_terms_for_their_audience_only() -> None:
    policy = with_forecast()
    topic = private_topic("facilities", "halls-forecast")
    assert [name for name in topic_names(policy) if "forecast" in name] == [topic]
    channel = asyncapi(policy)["channels"]["facilities.halls-forecast"]
    assert channel["messages"]["record"]["$ref"].endswith("forecast-record")
    assert channel["x-privacy"]["free_with"] == "halls"
    described = {each.release: each for each in described_releases(policy, "facilities")}
    assert (described["halls-forecast"].query, described["halls-forecast"].base) == ("forecast", "halls")
    assert [each.release for each in described_releases(policy, "public")] == ["halls"]


def test_the_service_answers_each_hour_from_the_newest_record_that_has_it(found: list[dict[str, Any]]) -> None:
    history = ReleaseHistory(None, {SITE: SiteClock("America/Los_Angeles", None)})
    assert history.forecast("facilities", "halls-forecast", SITE) == {"made_at": None, "start": [], "nodes": {}}
    changed = found[-1] | {"forecast": found[-1]["forecast"] | {"building": [99] * 15}}
    history.add([orjson.dumps(record) for record in [*found[:-1], changed]], {})
    answer = history.forecast("facilities", "halls-forecast", SITE)
    assert answer["made_at"] == changed["window_end"]
    assert answer["start"] == found[0]["hours"][9:]
    building = answer["nodes"]["building"]
    assert building["value"] == [99] * 15 + found[0]["forecast"]["building"][24:]
    assert {len(part) for part in building.values()} == {192 - 9}
    rows = history.latest("facilities", SITE)["rows"]
    assert rows == []


# Files of closed days.

HOLIDAYS = calendar(
    event(";VALUE=DATE:20201225", "RRULE:FREQ=YEARLY"),
    event(";VALUE=DATE:20260804", "DTEND;VALUE=DATE:20260807", "TRANSP:TRANSPARENT"),
    event(";VALUE=DATE:20261001", "STATUS:CANCELLED"),
    event("20260505T090000Z", "DURATION:PT48H"),
)


def test_whole_day_events_close_days_and_others_do_not() -> None:
    days = [day for day in whole_days(HOLIDAYS, (2020, 2050)) if day.startswith("2026")]
    assert days == ["2026-08-04", "2026-08-05", "2026-08-06", "2026-12-25"]


def test_a_policy_reads_the_closed_days_of_a_file_beside_it(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(policy_text(HALLS) + TABLE + 'closed = "holidays.ics"\nyears = [2027]\n')
    (tmp_path / "holidays.ics").write_bytes(HOLIDAYS)
    assert read_policy(policy).forecast[0].closed == ("2027-12-25",)
    (tmp_path / "holidays.ics").write_text("no calendar")
    with pytest.raises(PolicyError, match=r"forecast.closed: calendar: must be an iCalendar file"):
        read_policy(policy)
    (tmp_path / "holidays.ics").unlink()
    with pytest.raises(PolicyError, match=r"forecast.closed: file cannot be read"):
        read_policy(policy)
