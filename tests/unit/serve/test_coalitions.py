"""A coalition is added up from records of its audiences alone; what is none of these is refused, and is not shown."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from connectors.serve.ledger_views import Coalition
from stream.errors import DataError, UsageError
from tests.support.small_building import SITE, building, laboratory, outputs_of, people

POLICY = building()
PLAIN = "tacet.private.facilities.plain.v1"
RECORDS = [out.value for out in outputs_of(POLICY, people(hours=1), laboratory()) if out.topic == PLAIN]


def units(records: list[bytes]) -> Any:
    coalition = Coalition(POLICY, ["facilities"])
    for value in records:
        coalition.add(value)
    return coalition.units()


def test_records_contain_their_cost() -> None:
    reported = units(RECORDS)[SITE]
    assert float(reported["device_total"]) == 0.5 * len(RECORDS) > 0


CHANGES: list[dict[str, Any]] = [
    {"audience": "public"}, {"spend": "1e999999999"}, {"spend": 0.5}, {"epsilon": "1e999999999"}, {"spend": None},
    {"release_id": "x"}, {"release": 7},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=map(str, CHANGES))
def test_records_of_other_audiences_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"^record: must be a private release of one of the audiences$"):
        units([orjson.dumps(orjson.loads(RECORDS[0]) | change)])


def test_the_number_of_records_that_are_added_up_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.serve.ledger_views.MOST_RECORDS", len(RECORDS) - 1)
    with pytest.raises(UsageError, match="tacet account --coalition"):
        units(RECORDS)
