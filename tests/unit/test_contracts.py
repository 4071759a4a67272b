"""Contracts: what records are, and what topics cost, as documents of which every record is an instance."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from connectors.cli import tacet
from connectors.kafka.topics import topic_names
from connectors.reports.contracts import MODELS, asyncapi, contract_files, record_schema
from connectors.simulation.policy import policy_text as simulated_policy
from stream.errors import UsageError
from stream.policy.document import load_policy
from stream.records import HOUR
from stream.schemas import AUDIT
from stream.simulator.events import SimulatorConfig, simulate
from tests.core_ground import ACCESS_POINTS, SOURCES, bodies, building, laboratory, outputs_of, people
from tests.unit import test_noisy_release as noisy
from tests.unit import test_revised_release as revised

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "deploy" / "contracts"
OLD = json.loads((ROOT / "tests" / "fixtures" / "contracts_1.json").read_text())
OLD_STORE = json.loads((ROOT / "tests" / "fixtures" / "store_1.json").read_text())
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
    outputs = outputs_of(building(), people(hours=29), laboratory(4))  # shows some values, and withholds some
    private = bodies(outputs, "private")
    counts = [body for body in private if "attribute" not in body][-50:]
    counts += [body for release in RELEASES.values() for body in noisy.bodies(release)]
    counts += noisy.bodies(DAY, site='day_starts = "04:00"\ncontribution = "8h"\n')
    made = revised.made_by(
        revised.policy(revised.HOURLY + revised.TREE),
        revised.windows(revised.NINE, revised.NINE + 2 * HOUR),
    )
    counts += revised.bodies(made)
    return {
        "count-record": counts,
        "attribute-record": [body for body in private if "attribute" in body],
        "audit-entry": bodies(outputs, AUDIT)[-50:],
    }


@pytest.fixture(scope="module")
def made() -> dict[str, list[dict[str, Any]]]:
    return records()


def old_records() -> Iterator[dict[str, Any]]:
    """Yield the private records that 0.1.0 has put into a store."""
    for name, statements in OLD_STORE["files"].items():
        connection = sqlite3.connect(":memory:")
        connection.executescript("\n".join(statements))
        if name.startswith("private/"):
            for (value,) in connection.execute("SELECT value FROM records"):
                yield orjson.loads(value)
        connection.close()


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
    for wrong in ({"v": 2}, {"site": 7}, {"epsilon": 0.5}, {"epsilon": "-1"}, {"laboratory": "true"}):
        assert not CHECKED[name].is_valid(record | wrong), wrong


def test_a_schema_says_what_the_model_says_of_a_field() -> None:
    fields = record_schema("count-record")["properties"]
    assert fields["noisy"]["description"].startswith("With levels_noisy: of filters and groups")
    assert fields["window_end"]["format"] == "date-time"
    assert not any("default" in field for field in fields.values()), "a field that is left out is not there"


# --- from version to version --------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_readers_of_0_1_0_read_records_of_today(name: str, made: dict[str, list[dict[str, Any]]]) -> None:
    old = Draft202012Validator(OLD[name])
    for record in made[name]:
        old.validate(record)


@pytest.mark.parametrize("name", MODELS)
def test_no_field_of_0_1_0_is_gone_or_of_another_type(name: str) -> None:
    today = record_schema(name)
    assert set(OLD[name]["required"]) <= set(today["required"]), "what was always there still is"
    for field, said in OLD[name]["properties"].items():
        if "type" in said:
            assert today["properties"][field]["type"] == said["type"], field


def test_records_of_0_1_0_are_instances_of_todays_schemas() -> None:
    kinds = set()
    for record in old_records():
        name = "attribute-record" if "attribute" in record else "count-record"
        CHECKED[name].validate(record)
        kinds.add(record["mechanism"])
    assert kinds >= {"pegasus", "laplace"}


def test_a_reader_skips_what_a_later_version_adds(made: dict[str, list[dict[str, Any]]]) -> None:
    for name, validator in CHECKED.items():
        validator.validate(made[name][0] | {"said_later": [1]})


# --- topics and prices --------------------------------------------------------------------------------


def test_every_private_topic_has_a_channel_and_no_other() -> None:
    policy = building()
    described = [channel["address"] for channel in asyncapi(policy)["channels"].values()]
    assert sorted(described) == sorted(name for name in topic_names(policy) if name.startswith("tacet.private."))


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
    assert sorted(document["channels"]) == ["public.floors", "public.office-day"]
    assert "facilities" not in json.dumps(document)
    assert CliRunner().invoke(tacet, words).exit_code == 0
    assert len(orjson.loads((tmp_path / "out" / "asyncapi.json").read_bytes())["channels"]) == 4
    refused = CliRunner().invoke(tacet, [*words, "--audience", "nobody"])
    assert isinstance(refused.exception, UsageError)
    assert str(refused.exception) == "--audience must be one of the policy's, got nobody"
