"""What the service takes in: where it goes on reading, what it is told to be refused, and who is woken by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from connectors.serve.access import Access
from connectors.serve.event_streams import Streams
from connectors.serve.history.release_history import START
from connectors.serve.indexer import Indexer, own
from connectors.serve.service import Service
from stream.errors import DataError
from tests.unit.serve.released_history import MONDAY, TICK, history, window
from tests.unit.serve.test_api import POLICY, ROLES

RECORDS = [window(MONDAY + n * TICK, {"2011": n}) for n in range(1, 4)]
REAL = [orjson.dumps(orjson.loads(record) | {"laboratory": False}) for record in RECORDS]


def made() -> tuple[Service, Indexer]:
    kept, access = history(), Access(ROLES, clock=lambda: MONDAY)
    names: Any = SimpleNamespace()
    service = Service(POLICY, access, kept, Streams(access, kept), names, lambda: MONDAY)
    return service, Indexer(service)


async def test_reading_goes_on_where_the_history_says() -> None:
    service, index = made()
    assert (index.position("outbox:public"), index.last("outbox:public")) == (0, None)
    await index.add(RECORDS[:2], {"outbox:public": 7})
    assert (index.position("outbox:public"), index.last("outbox:public")) == (7, service.history.newest("public"))
    assert index.position("outbox:facilities") == 0


async def test_what_is_added_is_given_to_streams_once_and_what_was_computed_is_forgotten() -> None:
    service, index = made()
    await index.add(RECORDS[:1], {})
    service.cache["kept"] = 1
    first = service.history.newest("public")
    await index.add(RECORDS[:3], {})
    assert service.cache == {}
    tail = service.streams._tails["public"].behind(first)
    assert tail == service.history.since("public", START)[1:]


@pytest.mark.parametrize(("positions", "name"), [({"outbox:public": 1}, "outbox:public"), ({}, "play")])
async def test_what_is_no_private_record_is_refused_by_its_source(positions: dict[str, int], name: str) -> None:
    service, index = made()
    with pytest.raises(DataError, match=f"^{name}: record: must be"):
        await index.add([RECORDS[0], b"{}"], positions)
    assert service.history.newest("public") == START


async def test_a_service_says_that_its_releases_come_from_a_laboratory_key_from_the_first_of_them_on() -> None:
    service, index = made()
    await index.add(REAL[:1], {})
    assert not service.laboratory
    await index.add(RECORDS[1:2], {})
    await index.add(REAL[2:], {})
    assert service.laboratory


def test_a_source_holds_records_of_its_audience_alone() -> None:
    other = window(MONDAY + 9 * TICK, {"2011": 1}, audience="facilities")
    assert own("public", "outbox:public", RECORDS) == RECORDS
    for records in ([other], [*RECORDS, other], [other, *RECORDS]):
        with pytest.raises(DataError, match=r"^outbox:public: must contain only records of audience public$"):
            own("public", "outbox:public", records)
