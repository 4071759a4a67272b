"""Published schemas: every record is an instance of its schema."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from connectors.cli.main import tacet
from connectors.lab.simulation.policy import policy_text as simulated_policy
from connectors.operations.policy.contracts import (
    MODELS,
    Information,
    Odds,
    Units,
    asyncapi,
    contract_files,
    record_schema,
)
from connectors.storage.kafka.topics import topic_names
from connectors.storage.site_metadata import site_metadata
from stream.errors import UsageError
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.operators import scan
from stream.policy.privacy_days import PrivacyDays
from stream.records import HOUR, OccupancyWindow, WindowCharges
from stream.release.account_stage import account_stage
from stream.release.stage import ReleaseStage
from stream.release.validation import load_policy
from stream.schemas import AUDIT, LEAKAGE, METADATA, RECORD_KINDS, event_type, record_kind
from tests.support.forecasts import after, stream_of
from tests.support.people_models import model_of, provisional_model, small_policy, with_people
from tests.support.small_building import (
    ACCESS_POINTS,
    COUNTS,
    SOURCES,
    bodies,
    building,
    laboratory,
    outputs_of,
    people,
    policy_text,
)
from tests.unit.cli.test_policy_show import MODELLED, PRIVACY
from tests.unit.people import test_people_release as estimated
from tests.unit.release import test_heat_release as heat
from tests.unit.release import test_noisy_release as noisy
from tests.unit.release import test_revised_release as revised
from tests.unit.release import test_threshold_release as decided

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "deploy" / "contracts"
FIRST = json.loads((ROOT / "tests" / "fixtures" / "contracts_1.json").read_text())
"""Each schema as the first version published it; later versions do not change this file."""
CHECKED = {name: Draft202012Validator(record_schema(name)) for name in MODELS}
DAY = (
    'mechanism = "filter"\nunit = "device_day"\nnoise = "gaussian"\nepsilon = { fine = "4" }\ndelta = "0.000001"\n'
    'levels = ["floor", "building"]\nshares = { floor = "0.2", building = "0.8" }\n'
)
QUERY = '[[release.queries]]\nname = "q"\nkind = "{kind}"\nwindows = 2\n{more}'
RELEASES = {
    "denied": 'mechanism = "filter"\nepsilon = { fine = "1" }\ndaily_budget = { fine = "2" }\n' + noisy.LEVELS,
    "of levels": 'mechanism = "pegasus"\nepsilon = { fine = "1" }\n' + noisy.SHARES,
    "pruned": 'mechanism = "pegasus"\nepsilon = { fine = "1" }\nprune = { share = "0.2", below = 3 }\n' + noisy.SHARES,
    "carried": 'mechanism = "ba"\nw = 4\nepsilon = { fine = "1" }\n' + QUERY.format(kind="window-sum", more=""),
    "asked": 'mechanism = "laplace"\nepsilon = { fine = "1" }\n' + QUERY.format(kind="jump", more="threshold = 2\n"),
}


def records() -> dict[str, list[dict[str, Any]]]:
    """Records of every kind that releases make, by the name of their schema."""
    policy = building(head=PRIVACY, releases=COUNTS + MODELLED)
    outputs = outputs_of(policy, people(hours=29), laboratory(4))  # shows some values, and withholds some
    private = bodies(outputs, "private")
    counts = [body for body in private if "attribute" not in body][-50:]
    counts += [body for release in RELEASES.values() for body in noisy.bodies(release)]
    coloured = heat.released(heat.PLAIN, 3)
    counts += [body for each in "ab" for body in heat.of(coloured, each, "heat")[:: heat.DAY // 2]]
    counts += noisy.bodies(DAY, site='day_starts = "04:00"\ncontribution = "8h"\n')
    counts += noisy.bodies(DAY, site='day_starts = "04:00"\ncontribution = "8h"\nidentity = "login"\n')
    made = revised.made_by(
        revised.policy(revised.HOURLY + revised.TREE),
        revised.windows(revised.NINE, revised.NINE + 2 * HOUR),
    )
    counts += revised.bodies(made)
    by_login = decided.SITE.replace("day_starts", 'identity = "login"\nday_starts', 1)
    of_logins = load_policy(by_login + decided.stream())
    named = load_policy(policy_text().replace('id = "a"', 'id = "a"\nmetadata = { brick = "brick:Room", name = "A" }'))
    text = policy_text().replace("[site.dbh]\n", '[site.dbh]\nnames = "names.toml"\n', 1)
    floors = load_policy(text, read=lambda _: '[[site.dbh.floors]]\nid = "1"\n[[site.dbh.floors]]\nid = "2"\n')
    return {
        "count-record": counts,
        "attribute-record": [body for body in private if "attribute" in body],
        "threshold-record": decided.released(decided.windows([(n % 40, 0, 9) for n in range(12)])).records
        + decided.released(decided.windows([(9, 9, 9)] * 2, bounded=False)).records
        + decided.released(decided.windows([(9, 9, 9)] * 2), of_logins).records
        + decided.released(
            decided.windows([(9, 9, 9)] * 2), decided.policy(decided.stream(more='level = "floor"'))
        ).records,
        "people-record": estimated.records(
            estimated.released(with_people(model_of(small_policy())), estimated.windows(3, (4, 2, 0, 1, 0, 0)))
        )
        + estimated.records(
            estimated.released(with_people(provisional_model(small_policy())), estimated.windows(1, (4, 2, 0, 1, 0, 0)))
        ),
        "forecast-record": after(stream_of(), 17, lambda day, hour: hour, hours=2),
        "audit-entry": bodies(outputs, AUDIT)[-50:],
        "account-record": [*bodies(outputs, LEAKAGE)[-60:], *day_accounts()],
        "site-metadata": [{**site} for each in (policy, named, floors) for site in site_metadata(each).values()],
    }


def day_accounts() -> list[dict[str, Any]]:
    """Return the account of two windows of gaussian noise that is paid by the day: units that have no pure epsilon."""
    site = 'day_starts = "04:00"\ncontribution = "8h"\n'
    policy, days, counts = noisy.policy(DAY, site), PrivacyDays("04:00", "UTC"), noisy.COUNTS[0]
    ends = [noisy.NINE + place * noisy.TICK for place in (1, 2)]
    windows = [OccupancyWindow("dbh", end, counts, Fraction(1), days.at(end), counts) for end in ends]
    _, released = scan(ReleaseStage(policy, "dbh", noisy.KEYS), iter(windows))
    spent = [each for each in released if isinstance(each, WindowCharges)]
    _, made = scan(account_stage(policy, "dbh", laboratory=True), iter(spent))
    return bodies(made, LEAKAGE)


@pytest.fixture(scope="module")
def made() -> dict[str, list[dict[str, Any]]]:
    return records()


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_the_kind_of_a_record_is_that_of_its_schema(made: dict[str, list[dict[str, Any]]], kind: str) -> None:
    assert {record_kind(body) for body in made[f"{kind}-record"]} == {kind}
    schema = asyncapi(building())["components"]["messageTraits"]["cloudEvent"]["headers"]
    assert event_type(kind) in schema["properties"]["ce_type"]["enum"]


# --- schemas ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_schema_is_one_of_2020_12(name: str) -> None:
    Draft202012Validator.check_schema(record_schema(name))


@pytest.mark.parametrize("name", MODELS)
def test_every_record_is_an_instance_of_its_schema(name: str, made: dict[str, list[dict[str, Any]]]) -> None:
    assert made[name]
    for record in made[name]:
        CHECKED[name].validate(record)


@pytest.mark.parametrize("name", MODELS)
def test_every_field_of_a_record_is_in_its_schema(name: str, made: dict[str, list[dict[str, Any]]]) -> None:
    fields = set(record_schema(name)["properties"])
    assert all(set(record) <= fields for record in made[name])
    never_seen = fields - {field for record in made[name] for field in record}
    assert not never_seen, "the records tried here have all of them"


@pytest.mark.parametrize("name", MODELS)
def test_what_is_no_record_is_no_instance(name: str, made: dict[str, list[dict[str, Any]]]) -> None:
    record = made[name][0]
    for field in record_schema(name)["required"]:
        assert not CHECKED[name].is_valid({key: value for key, value in record.items() if key != field}), field
    for field, value in (("v", 2), ("site", 7), ("epsilon", 0.5), ("epsilon", "-1"), ("laboratory", "true")):
        if field in record:
            assert not CHECKED[name].is_valid(record | {field: value}), field


def test_a_schema_says_what_the_model_says_of_a_field() -> None:
    fields = record_schema("count-record")["properties"]
    assert fields["noisy"]["description"].startswith("Counts with noise that is independent from window to window")
    assert fields["window_end"]["format"] == "date-time"
    assert not any("default" in field for field in fields.values()), "a field that is left out is not there"


# --- from version to version --------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIRST)
def test_readers_of_the_first_version_read_records_of_today(name: str, made: dict[str, list[dict[str, Any]]]) -> None:
    old = Draft202012Validator(FIRST[name])
    for record in made[name]:
        old.validate(record)


@pytest.mark.parametrize("name", FIRST)
def test_no_field_of_the_first_version_is_gone_or_of_another_type(name: str) -> None:
    today = record_schema(name)
    assert set(FIRST[name]["required"]) <= set(today["required"]), "what was always there still is"
    for field, said in FIRST[name]["properties"].items():
        if "type" in said:
            assert today["properties"][field]["type"] == said["type"], field


def test_a_reader_skips_what_a_later_version_adds(made: dict[str, list[dict[str, Any]]]) -> None:
    for name, validator in CHECKED.items():
        validator.validate(made[name][0] | {"said_later": [1]})


# --- what models say of records that are made without them ---------------------------------------------


@pytest.mark.parametrize("name", ["account-record", "site-metadata"])
def test_a_model_tells_all_of_a_record(name: str, made: dict[str, list[dict[str, Any]]]) -> None:
    """What a record has, at any depth, the model has; read and written again it is the same."""
    for record in made[name]:
        again = MODELS[name].model_validate(record).model_dump(mode="json", exclude_unset=True)
        assert {"v": 1} | again == record


@pytest.mark.parametrize(("model", "at"), [(Units, "audiences"), (Odds, "attributes"), (Information, "information")])
def test_every_field_within_an_account_is_seen(
    model: type[BaseModel], at: str, made: dict[str, list[dict[str, Any]]]
) -> None:
    held = [each for record in made["account-record"] for each in record.get(at, {}).values()]
    if model is Information:
        held = [row for by_reader in held for row in by_reader.values()]
    assert {field for each in held for field in each} == set(model.model_fields)


def test_no_address_is_in_metadata(made: dict[str, list[dict[str, Any]]]) -> None:
    text = json.dumps(made["site-metadata"])
    assert not [address for address in (*ACCESS_POINTS.values(), *SOURCES) if address in text]


# --- topics and prices --------------------------------------------------------------------------------


def test_every_topic_that_is_read_has_a_channel_and_no_other() -> None:
    policy = building()
    described = [channel["address"] for channel in asyncapi(policy)["channels"].values()]
    private = [name for name in topic_names(policy) if name.startswith("tacet.private.")]
    assert sorted(described) == sorted([*private, LEAKAGE, METADATA])


def test_the_account_and_the_metadata_say_who_reads_them_as_whom() -> None:
    document = asyncapi(building())
    channels, messages = document["channels"], document["components"]["messages"]
    assert channels["account"]["x-privacy"] == {"spend": "0", "read_as": ["facilities", "public", "board"]}
    assert channels["metadata"]["x-privacy"] == {"spend": "0"}
    assert [name for name, message in messages.items() if "traits" in message] == [
        "count-record", "attribute-record", "threshold-record", "people-record", "forecast-record",
    ]  # fmt: skip
    assert "#/$defs" not in json.dumps(document), "every reference leads somewhere within the document"


def test_who_is_one_audience_is_told_of_no_account() -> None:
    channels = set(asyncapi(building(), ["public"])["channels"])
    assert channels == {"public.grouped", "public.smooth", "public.office-day", "metadata"}


def test_channels_say_what_their_records_cost_whom() -> None:
    channels = asyncapi(building(tick="15min"))["channels"]
    board, public = channels["board.plain"]["x-privacy"], channels["public.office-day"]["x-privacy"]
    assert board == {
        "unit": "window", "epsilon": "0.25", "delta": "0", "mechanism": "laplace", "noise": "laplace",
        "levels": ["zone", "building"], "budget": {"days": 1, "epsilon": "10"},
        "sites": {"dbh": {"tick_seconds": 900, "window_seconds": 900, "timezone": "America/Los_Angeles"}},
    }  # fmt: skip
    assert (public["unit"], public["mechanism"], public["absent"]) == ("zone_day", "osdprr", "sensitive")
    assert public["attributes"] == {"arrival": {"epsilon": "0.2", "sensitive": {"after": "10:00"}}}


def test_a_day_a_revision_and_a_question_have_their_own_terms() -> None:
    day = noisy.policy(DAY + 'revise = "1h"\n', 'day_starts = "04:00"\ncontribution = "8h"\n')
    channels = asyncapi(day)["channels"]
    assert {key: channels["fine.r"]["x-privacy"][key] for key in ("unit", "epsilon", "delta", "noise")} == {
        "unit": "device_day", "epsilon": "4", "delta": "0.000001", "noise": "gaussian",
    }  # fmt: skip
    again = channels["fine.r-revised"]["x-privacy"]
    assert (again["free_with"], again["revised"]) == ("r", ["1h"])
    carried = asyncapi(noisy.policy(RELEASES["carried"]))["channels"]
    assert (carried["fine.r"]["x-privacy"]["unit"], carried["fine.r"]["x-privacy"]["w"]) == ("w_windows", 4)
    assert carried["fine.q"]["x-privacy"]["query"] == {"kind": "window-sum", "windows": 2}


def test_no_address_is_in_a_contract() -> None:
    text = b"".join(contract_files(building()).values()).decode()
    assert not [address for address in (*ACCESS_POINTS.values(), *SOURCES) if address in text]


# --- files --------------------------------------------------------------------------------------------


def test_committed_contracts_are_those_of_the_example_policy() -> None:
    """``tacet simulate --policy-out policy.toml``, ``tacet policy contracts policy.toml --out deploy/contracts``."""
    example = load_policy(simulated_policy(simulate(SimulatorConfig(seed=1))))
    files = contract_files(example)
    assert {path.name for path in COMMITTED.iterdir()} == set(files)
    for name, document in files.items():
        assert (COMMITTED / name).read_bytes() == document, name


def test_the_verb_writes_them_for_some_audiences_or_all(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(simulated_policy(simulate(SimulatorConfig(seed=1))))
    words = ["policy", "contracts", str(tmp_path / "policy.toml"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(tacet, [*words, "--audience", "public"])
    assert done.exit_code == 0, done.output
    document = orjson.loads((tmp_path / "out" / "asyncapi.json").read_bytes())
    assert sorted(document["channels"]) == ["metadata", "public.floors", "public.office-day"]
    assert "facilities" not in json.dumps(document)
    assert CliRunner().invoke(tacet, words).exit_code == 0
    assert len(orjson.loads((tmp_path / "out" / "asyncapi.json").read_bytes())["channels"]) == 6
    refused = CliRunner().invoke(tacet, [*words, "--audience", "nobody"])
    assert isinstance(refused.exception, UsageError)
    assert str(refused.exception) == "--audience must be one of the policy's, got nobody"
