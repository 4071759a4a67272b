"""People in the whole pipeline: however a log is cut, across a restart, and before an auditor."""

from __future__ import annotations

import random
from typing import Any

from stream.accounting.audit import compare_records
from stream.pipeline import Pipeline
from stream.records import Published
from stream.schemas import private_topic
from tests.support.people_models import model_of, small_policy, with_people
from tests.support.small_building import SITE, audit_of, bodies, laboratory, messages, people, run

SEEN = people(3, hours=20, devices=12)
POLICY = with_people(model_of(small_policy()))
TOPIC = private_topic("facilities", "halls-people")


def published(outputs: list[Any]) -> list[bytes]:
    """Return the records of people."""
    return [out.value for out in outputs if isinstance(out, Published) and out.topic == TOPIC]


def test_people_depend_on_the_log_alone_and_not_on_how_it_was_cut() -> None:
    log = messages(SEEN, POLICY)
    whole = published(run(Pipeline(POLICY, SITE, laboratory()), log))
    cut = published(run(Pipeline(POLICY, SITE, laboratory()), messages(SEEN, POLICY, random.Random(1))))
    assert whole == cut
    assert len(whole) > 40


def test_a_restart_in_the_middle_repeats_and_loses_nothing() -> None:
    pipeline = Pipeline(POLICY, SITE, laboratory())
    log = [*messages(SEEN, POLICY)]
    whole = published(run(Pipeline(POLICY, SITE, laboratory()), log))
    state, outputs = pipeline.initial(), list[Any]()
    for place, item in enumerate(log):
        state, made = pipeline.step(state, item)
        outputs += made
        if place == len(log) // 2:
            pipeline = Pipeline(POLICY, SITE, laboratory())
            state = pipeline.decode(pipeline.encode(state))
    assert published(outputs) == whole


def test_an_auditor_finds_every_charge_and_none_for_people() -> None:
    outputs = run(Pipeline(POLICY, SITE, laboratory()), messages(SEEN, POLICY))
    entries, records = audit_of(outputs), bodies(outputs, "private")
    compared = compare_records(entries, records)
    assert compared.missing == []
    assert compared.records == len(entries) < len(records)


def test_a_policy_with_people_continues_the_state_of_one_without() -> None:
    plain = Pipeline(small_policy(), SITE, laboratory())
    log = [*messages(SEEN, POLICY)]
    state = plain.initial()
    for item in log[: len(log) // 2]:
        state, _ = plain.step(state, item)
    later = Pipeline(POLICY, SITE, laboratory())
    moved, outputs = later.migrate(plain.encode(state)), list[Any]()
    for item in log[len(log) // 2 :]:
        moved, made = later.step(moved, item)
        outputs += made
    assert published(outputs)
    back = Pipeline(small_policy(), SITE, laboratory()).migrate(later.encode(moved))
    assert "halls-people/facilities" not in back.release.operator_states
