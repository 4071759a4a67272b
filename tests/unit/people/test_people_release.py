"""People of a release: a topic of their own, free, from published records alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import orjson
import pytest

from stream.errors import PolicyError
from stream.keys import ForwardKeys, LaboratoryKeys
from stream.operators import scan
from stream.policy.people import PeopleModel
from stream.records import DAY, HOUR, MINUTE, Micros, OccupancyWindow, Published
from stream.release.backfill import BackfillStage
from stream.release.people import FeedState, PeopleStream
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy
from stream.schemas import AUDIT, PeopleRecord, parse_time, private_topic, rfc3339
from tests.support.people_models import CURVE, HALLS, LEVEL, model_of, provisional_model, small_policy, with_people
from tests.support.small_building import SITE

TICK = 15 * MINUTE
NOON = parse_time("2026-03-02T12:00:00-08:00")
KEYS = LaboratoryKeys(b"p" * 32, "ledger", b"a" * 32)
TOPIC = private_topic("facilities", "halls-people")


def windows(n: int, counts: tuple[int, ...] = (20, 10, 5, 30, 1, 1), start: Micros = NOON) -> list[OccupancyWindow]:
    return [OccupancyWindow(SITE, start + place * TICK, counts, Fraction(1)) for place in range(1, n + 1)]


def released(policy: Policy, items: list[OccupancyWindow]) -> list[Published]:
    _, outputs = scan(ReleaseStage(policy, SITE, KEYS), items)
    return [each for each in outputs if isinstance(each, Published)]


def records(outputs: list[Published], topic: str = TOPIC) -> list[dict[str, Any]]:
    return [orjson.loads(each.value) for each in outputs if each.topic == topic]


def counts_of(n: int) -> tuple[list[Published], Policy]:
    policy = with_people(model_of(small_policy()))
    return released(policy, windows(n)), policy


def test_a_release_is_followed_by_people_with_their_bands() -> None:
    outputs, policy = counts_of(3)
    found, counts = records(outputs), records(outputs, private_topic("facilities", "halls"))
    assert len(found) == len(counts) == 3
    for people, count in zip(found, counts, strict=True):
        model = policy.people[0].model
        for zone in ("a", "b"):
            band = model.estimate(f"zone:{zone}", count["values"][zone], 12)
            assert (people["values"][zone], people["low"][zone], people["high"][zone]) == band
        assert people["counted"] == "people"
        assert people["band"] == 0.9
        assert people["of"] == count["release_id"]
        assert people["model"] == model.digest
        assert (people["spend"], people["mechanism"]) == ("0", "laplace/people")
        PeopleRecord.model_validate(people)


def test_people_come_from_the_release_of_their_model_only() -> None:
    two = HALLS + HALLS.replace('"halls"', '"again"')
    found = records(released(with_people(model_of(small_policy(two)), two), windows(2)))
    assert len(found) == 2
    assert all("/halls/" in record["of"] for record in found)


def test_an_audience_without_a_model_gets_no_people() -> None:
    outputs, _ = counts_of(2)
    assert {each.topic for each in outputs if each.topic.endswith("people.v1")} == {TOPIC}


def test_people_cost_nothing_and_leave_all_other_bytes_as_they_are() -> None:
    """Policies differ, so only the policy's version may."""
    outputs, policy = counts_of(4)
    plain = released(small_policy(), windows(4))
    version, old = policy.version.encode(), small_policy().version.encode()
    others = [each.value.replace(version, old) for each in outputs if each.topic not in {TOPIC, AUDIT}]
    assert others == [each.value for each in plain if each.topic != AUDIT]
    entries = [orjson.loads(each.value) for each in outputs if each.topic == AUDIT]
    assert len(entries) == 8
    assert not any("people" in entry["release_id"] for entry in entries)


def test_the_same_released_values_of_another_world_give_the_same_people() -> None:
    """A stream of people receives published bytes: two worlds with equal releases have equal people, byte for byte.

    The worlds' true counts differ by up to the noise; the release of the second is replaced by that of the first.
    """
    policy = with_people(model_of(small_policy()))
    one = released(policy, windows(8))
    other = released(policy, windows(8, (19, 12, 5, 30, 0, 1)))
    topic = private_topic("facilities", "halls")
    assert [e.value for e in one if e.topic == topic] != [e.value for e in other if e.topic == topic]
    stream = PeopleStream(policy.people[0], "America/Los_Angeles", TICK)
    _, again = scan(stream, [each for each in one if each.topic == topic])
    assert again == [each for each in one if each.topic == TOPIC]


def test_a_node_without_evidence_says_why_and_has_no_number() -> None:
    outputs, _ = counts_of(1)
    [people] = records(outputs)
    uncounted = dict.fromkeys(("zone:c", "zone:d", "floor:1", "floor:2"), "node")
    assert people["unknown"] == uncounted | {"building": "range"}
    assert set(people["values"]) == {"a", "b"}


def given(values: dict[str, int] | None, end: Micros, **more: Any) -> Published:
    """Return a published record of counts."""
    record: dict[str, Any] = {
        "v": 1, "release_id": f"{SITE}/halls/facilities/{rfc3339(end)}", "site": SITE, "audience": "facilities",
        "release": "halls", "window_start": rfc3339(end - TICK), "window_end": rfc3339(end), "values": values,
        "released": values is not None, "reason": None if values is not None else "budget", "mechanism": "laplace",
        "epsilon": "1", "spend": "1", "noise_scale": {}, "half_width_95": None, "half_width_kind": "noise",
        "coverage": 1.0, "policy_version": "0" * 16, "laboratory": True,
    } | more  # fmt: skip
    return Published(private_topic("facilities", "halls"), SITE, orjson.dumps(record), end, record["release_id"])


def stream_of(**changes: Any) -> PeopleStream:
    policy = small_policy()
    fields: dict[str, Any] = {"nodes": {"zone:a": CURVE}, "levels": {"zone": LEVEL}} | changes
    model = model_of(policy, **fields)
    return PeopleStream(with_people(model).people[0], "America/Los_Angeles", TICK)


def people_at(stream: PeopleStream, item: Published, state: FeedState | None = None) -> dict[str, Any]:
    _, [record] = stream.step(state or stream.initial(), item)
    found: dict[str, Any] = orjson.loads(record.value)
    return found


def test_a_denied_window_has_no_people_and_its_own_reason() -> None:
    people = people_at(stream_of(), given(None, NOON))
    assert (people["values"], people["released"], people["reason"], people["unknown"]) == (None, False, "budget", {})


@pytest.mark.parametrize(
    ("value", "more", "why"),
    [(41, {}, "range"), (10, {"coverage": 0.5}, "coverage")],
)
def test_outside_of_its_evidence_a_stream_gives_a_reason_in_place_of_a_number(
    value: int, more: dict[str, Any], why: str
) -> None:
    stream = stream_of(levels={"zone": LEVEL | {"coverage": 1000}})
    people = people_at(stream, given({"a": value}, NOON, **more))
    assert (people["values"], people["unknown"], people["released"], people["reason"]) == (
        None, {"zone:a": why}, False, why,
    )  # fmt: skip


def test_hours_are_those_of_the_site() -> None:
    stream = stream_of(levels={"zone": LEVEL | {"hours": {"12": 1000}}})
    assert people_at(stream, given({"a": 10}, NOON))["released"]
    assert people_at(stream, given({"a": 10}, NOON - HOUR))["reason"] == "hour"


def test_a_provisional_model_says_so_and_promises_no_share_until_it_expires() -> None:
    policy = small_policy()
    stream = PeopleStream(with_people(provisional_model(policy)).people[0], "America/Los_Angeles", TICK)
    people = people_at(stream, given({"a": 20}, NOON))
    assert (people["provisional"], people["band"], people["values"], people["low"], people["high"]) == (
        True, 0, {"a": 10}, {"a": 2}, {"a": 27},
    )  # fmt: skip
    PeopleRecord.model_validate(people)
    last = NOON + 13 * DAY
    assert people_at(stream, given({"a": 20}, last))["released"]
    after = people_at(stream, given({"a": 20}, last + DAY))
    assert (after["released"], after["reason"], after["unknown"]) == (False, "expired", {"zone:a": "expired"})
    full, _ = counts_of(1)
    assert "provisional" not in records(full)[0]


def run(stream: PeopleStream, per_day: list[int]) -> list[str | None]:
    """Return the reason at each day's last window, for constant released values."""
    state, found = stream.initial(), []
    midnight = NOON - 12 * HOUR
    for day, value in enumerate(per_day):
        for place in range(1, 96):
            end = midnight + day * DAY + place * TICK
            state, [record] = stream.step(state, given({"a": value}, end))
            state = stream.decode(stream.encode(state))
        found.append(orjson.loads(record.value)["reason"])
    return found


def test_after_a_day_unlike_those_of_the_model_numbers_stop_until_a_day_is_usual_again() -> None:
    stream = stream_of(nodes={"zone:a": CURVE.model_copy(update={"usual": (4000, 6000)})})
    assert run(stream, [5, 20, 5, 5, 0, 5, 5]) == [None, None, "feed", None, None, "feed", None]


def test_a_day_with_few_windows_judges_nothing() -> None:
    stream = stream_of(nodes={"zone:a": CURVE.model_copy(update={"usual": (4000, 6000)})})
    state, _ = stream.step(stream.initial(), given({"a": 40}, NOON))
    assert people_at(stream, given({"a": 5}, NOON + DAY), state)["released"]


@pytest.mark.parametrize(("count", "reason"), [(47, None), (48, "feed")])
def test_half_of_its_windows_judge_a_day(count: int, reason: str | None) -> None:
    stream = stream_of(nodes={"zone:a": CURVE.model_copy(update={"usual": (4000, 6000)})})
    state = stream.initial()
    for place in range(1, count + 1):
        state, _ = stream.step(state, given({"a": 40}, NOON - 12 * HOUR + place * TICK))
    assert people_at(stream, given({"a": 5}, NOON + DAY), state)["reason"] == reason


def test_a_laboratorys_model_is_refused_under_a_production_key() -> None:
    model = model_of(small_policy())
    production = ForwardKeys(0, b"k" * 32, "ledger", b"a" * 32)
    with pytest.raises(PolicyError, match="was made in a laboratory or from a file of unknown origin"):
        ReleaseStage(with_people(model), SITE, production)
    own = PeopleModel.model_validate(model.model_dump() | {"laboratory": False})
    ReleaseStage(with_people(own), SITE, production)


def test_the_state_of_the_feed_survives_a_restart_and_is_absent_without_people() -> None:
    policy = with_people(model_of(small_policy()))
    stage = ReleaseStage(policy, SITE, KEYS)
    state, _ = scan(stage, windows(5))
    again = ReleaseStage(policy, SITE, KEYS)
    restored = again.decode(stage.encode(state))
    _, one = scan(stage, windows(2, start=NOON + 5 * TICK), state)
    _, other = scan(again, windows(2, start=NOON + 5 * TICK), restored)
    assert one == other
    plain = ReleaseStage(small_policy(), SITE, KEYS)
    assert "halls-people" not in str(plain.encode(scan(plain, windows(1))[0]))


def test_a_backfill_names_people_among_its_records() -> None:
    policy = with_people(model_of(small_policy()))
    stage = BackfillStage(policy, SITE, KEYS)
    assert f"{SITE}/halls-people/facilities/{rfc3339(NOON)}" in stage.ids(windows(1, start=NOON - TICK)[0])


def test_a_release_called_like_the_people_of_another_is_refused() -> None:
    more = HALLS + HALLS.replace('"halls"', '"halls-people"')
    with pytest.raises(PolicyError, match="release and query names must be unique"):
        with_people(model_of(small_policy(more)), more)
