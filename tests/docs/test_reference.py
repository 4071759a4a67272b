"""The reference leaves nothing out that can be set or read, and lists nothing that is not there."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import BaseModel

from stream import schemas
from stream.settings import Settings
from tests.support.documents import DOCUMENTS, part
from tests.support.small_building import ATTRIBUTES, COUNTS, account_of, building, outputs_of, people

COMMANDS = DOCUMENTS["docs/reference/commands.md"]
RECORDS = DOCUMENTS["docs/reference/records.md"]
TOPICS = DOCUMENTS["docs/architecture.md"]

# --- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_listed_with_its_default(name: str) -> None:
    (default,) = re.findall(rf"^\| `TACET_{name.upper()}` \| (.*?) \|", COMMANDS, flags=re.MULTILINE)
    value = Settings.model_fields[name].default
    assert default == ("none" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`")


def test_no_setting_is_listed_that_is_not_there() -> None:
    listed = set(re.findall(r"^\| `TACET_([A-Z_]+)`", COMMANDS, flags=re.MULTILINE))
    assert listed == {name.upper() for name in Settings.model_fields}


def test_what_the_page_of_kafka_sets_is_a_setting() -> None:
    named = set(re.findall(r"\bTACET_([A-Z_]+[A-Z])", DOCUMENTS["docs/kafka.md"]))
    assert len(named) == 7
    assert named <= {name.upper() for name in Settings.model_fields}


# --- what is published --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [schemas.CountRecord, schemas.AttributeRecord])
def test_every_field_of_a_released_record_is_listed(model: type[BaseModel]) -> None:
    of_all = RECORDS[RECORDS.index("| field | counts |") :].split("\n\n")[0]
    first_cells = " ".join(re.findall(r"^\| (`.*?) \|", of_all, flags=re.MULTILINE))
    column = 2 if model is schemas.CountRecord else 3
    for name in ("v", *model.model_fields):
        assert f"`{name}`" in first_cells, name
        (row,) = [line for line in of_all.splitlines() if re.match(rf"\| [^|]*`{name}`", line)]
        assert row.split("|")[column].strip(), f"{name} must be marked in column {column}"


def test_every_topic_is_listed() -> None:
    topics = [value for value in vars(schemas).values() if isinstance(value, str) and value.startswith("tacet.")]
    assert len(topics) >= 7
    for topic in (*topics, schemas.private_topic("<audience>", "<release>")):
        assert f"| `{topic}` |" in TOPICS


# --- the account --------------------------------------------------------------------------------------

KNOWING = """
[privacy]
mobility = { forward = [[0.9, 0.1], [0.2, 0.8]] }
meetings = [{ size = 3, correlation = 0.5, presence = 0.3 }]
"""
MODEL = """
information_target = 0.5
model = { joint = { "00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4 } }
"""
KIND = 'zones = { kind = "office" }'


@pytest.fixture(scope="module")
def account() -> list[dict[str, Any]]:
    """The account of a few days in which everything that can stand in it does."""
    attributes = ATTRIBUTES.replace(KIND, KIND + MODEL)
    assert attributes != ATTRIBUTES
    return account_of(outputs_of(building(releases=COUNTS + attributes, head=KNOWING), people()))


def test_fields_units_and_factors_of_the_account_are_exactly_those_listed(account: list[dict[str, Any]]) -> None:
    fields = {name for record in account for name in record}
    units = {name for record in account for reader in record["audiences"].values() for name in reader}
    factors = {name for record in account for figures in record["attributes"].values() for name in figures}
    assert {"exact", "temporal", "meeting", "information"} <= fields | units | factors
    cells = [re.findall(r"`([a-z_0-9]+)`", cell) for cell in re.findall(r"^\| (`.*?) \|", part("account"), flags=re.M)]
    assert sorted(name for cell in cells for name in cell) == sorted([*fields, *units, *factors])
