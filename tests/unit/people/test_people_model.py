"""A model of people: its estimates, what it does not know, and a policy that names it."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from stream.errors import PolicyError
from stream.policy.document import PolicyDocument
from stream.policy.people import Band, PeopleModel, read_model
from stream.release.validation import load_policy
from tests.support.people_models import CURVE, HALLS, LEVEL, model_of, provisional_model, small_policy, with_people
from tests.support.small_building import policy_text


def test_people_are_interpolated_between_knots_and_never_negative() -> None:
    assert [CURVE.people(devices) for devices in (0, 5, 10, 25, 40)] == [0, 4000, 8000, 14_000, 20_000]
    model = model_of(small_policy())
    assert model.estimate("zone:a", -7, 12) == model.estimate("zone:a", 0, 12) == Band(0, 0, 2)


def test_the_band_is_q_deviations_of_which_a_is_constant_and_b_grows_with_devices() -> None:
    """q = 2, a = 1, b = 0.1: at 40 devices 20 people, deviation sqrt(1 + 16), band 20 ± 8.25, rounded outwards."""
    assert model_of(small_policy()).estimate("zone:a", 40, 12) == Band(20, 11, 29)


def test_a_provisional_band_reaches_from_a_part_of_the_estimate_to_a_multiple_and_two_people_further() -> None:
    """20 devices are 10 people, 10 / 2.5 - 2 to 2.5 x 10 + 2; no model of enough days widens by a factor."""
    model = provisional_model(small_policy())
    assert model.estimate("zone:a", 20, 12) == Band(10, 2, 27)
    assert (model.band, model_of(small_policy()).band) == (0.0, 0.9)


def test_a_provisional_model_has_expired_after_its_last_day_and_any_other_never() -> None:
    model = provisional_model(small_policy())
    assert [model.has_expired(date(2026, 3, day)) for day in (2, 15, 16)] == [False, False, True]
    assert not model_of(small_policy()).has_expired(date(2126, 1, 1))


def test_a_model_that_is_not_provisional_has_the_file_it_had() -> None:
    """Policies name it by its digest, which a field that says nothing must not change."""
    assert b"provisional" not in model_of(small_policy()).to_bytes()
    model = provisional_model(small_policy())
    assert read_model(model.to_bytes().decode()) == model
    assert model.provisional is not None
    later = model.model_copy(update={"provisional": model.provisional.model_copy(update={"until": date(2027, 1, 1)})})
    assert later.digest != model.digest


def test_an_hour_has_its_factor() -> None:
    levels = {"zone": LEVEL | {"hours": {"9": 500, "12": 1000}}, "building": LEVEL}
    model = model_of(small_policy(), levels=levels)
    assert model.estimate("zone:a", 40, 9).value == 10
    assert model.estimate("zone:a", 40, 12).value == 20


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("zone:a", 40, 12, 1.0), None),
        (("zone:c", 40, 12, 1.0), "node"),
        (("zone:a", 40, 3, 1.0), "hour"),
        (("zone:a", 41, 12, 1.0), "range"),
        (("zone:a", 40, 12, 0.4), "coverage"),
    ],
)
def test_what_nobody_counted_is_unknown(given: tuple[str, int, int, float], why: str | None) -> None:
    levels = {"zone": LEVEL | {"hours": {"12": 1000}, "coverage": 500}, "building": LEVEL}
    assert model_of(small_policy(), levels=levels).unknown(*given) == why


def test_a_day_is_unusual_beyond_twice_or_below_half_of_the_days_of_the_model() -> None:
    model = model_of(small_policy(), nodes={"zone:a": CURVE.model_copy(update={"usual": (6000, 10_000)})})
    means = {mean: model.is_usual("zone:a", mean * 96, 96) for mean in (1, 2, 10, 21, 22)}
    assert means == {1: False, 2: True, 10: True, 21: True, 22: False}


def test_a_model_survives_its_file_and_any_change_gives_another_digest() -> None:
    model = model_of(small_policy())
    assert read_model(model.to_bytes().decode()) == model
    assert read_model(model.to_bytes().decode()).digest == model.digest
    other = model.model_copy(update={"nodes": {"zone:a": CURVE}})
    assert other.digest != model.digest


def test_a_policy_contains_its_model_and_keeps_it_in_its_document() -> None:
    policy = with_people(model_of(small_policy()))
    again = PolicyDocument.from_document(policy.document())
    assert again.people == policy.people
    assert again.version == policy.version != small_policy().version


def test_a_policy_without_people_has_the_document_it_had() -> None:
    assert b"people" not in small_policy().document().replace(b"devices_per_person", b"")


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"site": "elsewhere"}, "the model must be of a site of the policy, got 'elsewhere'"),
    ({"release": "other"}, "the model must be of a count release and one of its audiences, got 'other'"),
    ({"audience": "board"}, "got 'halls' and 'board'"),
    ({"terms": "0" * 64}, "must publish as it did when the model was made"),
    ({"nodes": {"zone:x": CURVE}}, "the model's nodes must be published by release 'halls', got 'zone:x'"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_a_model_of_something_else_is_refused(change: dict[str, Any], message: str) -> None:
    model = model_of(small_policy())
    other = PeopleModel.model_validate(model.model_dump() | change)
    with pytest.raises(PolicyError, match=message):
        with_people(other)


@pytest.mark.parametrize("key", ["epsilon", "tick", "mechanism", "bounds"])
def test_a_release_with_other_terms_refuses_its_model(key: str) -> None:
    model = model_of(small_policy())
    changed: dict[str, Any] = {
        "epsilon": {"releases": HALLS.replace('facilities = "1"', 'facilities = "2"')},
        "tick": {"tick": "5min"},
        "mechanism": {"releases": HALLS.replace('"laplace"', '"pegasus"')},
        "bounds": {"site": 'validity = "15min"'},
    }[key]
    if key == "bounds":
        text = policy_text(HALLS).replace('validity = "10min"', 'validity = "15min"')
        table = f'\n[people]\nmodel = "m"\ndigest = "{model.digest}"\n'
        with pytest.raises(PolicyError, match="calibrate again"):
            load_policy(text + table, read=lambda _: model.to_bytes().decode())
        return
    with pytest.raises(PolicyError, match="calibrate again"):
        with_people(model, **changed)


def test_another_digest_a_missing_file_and_a_file_that_is_no_model_are_refused() -> None:
    model = model_of(small_policy())
    with pytest.raises(PolicyError, match="digest must be that of the model"):
        with_people(model, digest="0" * 64)
    text = policy_text(HALLS) + f'\n[people]\nmodel = "people.json"\ndigest = "{model.digest}"\n'

    def missing(name: str) -> str:
        msg = "file cannot be read (No such file or directory)"
        raise ValueError(msg)

    with pytest.raises(PolicyError, match=r"people.model: file cannot be read .*, got 'people.json'"):
        load_policy(text, read=missing)
    with pytest.raises(PolicyError, match="file must be JSON that 'tacet calibrate' wrote"):
        load_policy(text, read=lambda _: "{")
    with pytest.raises(PolicyError, match=r"file must be a model that 'tacet calibrate' wrote \(v: Field required\)"):
        load_policy(text, read=lambda _: "{}")
    with pytest.raises(PolicyError, match="must not name a file if the policy was not read from a file"):
        load_policy(text)


def test_two_models_of_one_release_for_one_audience_are_refused() -> None:
    model = model_of(small_policy())
    table = f'\n[[people]]\nmodel = "people.json"\ndigest = "{model.digest}"\n'
    with pytest.raises(PolicyError, match="one model for each site, release and audience"):
        load_policy(policy_text(HALLS) + table * 2, read=lambda _: model.to_bytes().decode())
