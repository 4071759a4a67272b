"""What an account is made from: the records of a store, in order, and what is missing of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.operations.account import counted_sites, gaps, in_order, people_truths, published, published_summary
from connectors.storage.embedded.reader import read_topic
from connectors.storage.embedded.runner import embedded
from stream.policy.people import Truth
from stream.schemas import LEAKAGE, parse_record
from tests.support.people_models import model_of, small_policy, with_people
from tests.support.small_building import COUNTS, SITE, building, messages, people

POLICY = building(releases=COUNTS)


def window(hour: int, *, site: str = SITE, **more: Any) -> dict[str, Any]:
    return {"site": site, "window_end": f"2026-03-02T{hour:02}:00:00Z", "kind": "counts", **more}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which an hour has been released."""
    folder = tmp_path_factory.mktemp("account")
    key_files.create(folder / "key", laboratory=True)
    with embedded(POLICY, folder / "key", folder / "store") as runner:
        for message in messages(people(hours=1, devices=3), POLICY):
            runner.process(message, durable=False)
    return folder / "store"


def test_an_account_is_read_from_a_store(store: Path) -> None:
    records = published(store, None)
    assert records == in_order([parse_record(value) for value in read_topic(store, LEAKAGE)])
    of_site = published_summary(store, None)["sites"][SITE]
    assert of_site["records"] == len(records) > 0
    assert of_site["last"]["window_end"] == records[-1]["window_end"]
    assert "feed" not in of_site, "it has no people counters"
    assert "identity" not in of_site, "it counts devices"


def test_the_last_record_of_a_window_counts_and_attributes_come_before_counts() -> None:
    first, again = window(9, cost="1"), window(9, cost="2")
    day, later = window(9, kind="attributes"), window(10)
    assert in_order([later, first, day, again]) == [day, again, later]


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ([9, 10, 11], None),
        ([11, 9, 10], None),
        ([9, 10], "its last record is of 2026-03-02T10:00:00Z, the ledger goes on to 2026-03-02T11:00:00Z: records"),
        ([10, 9], "its last record is of 2026-03-02T10:00:00Z, the ledger goes on to 2026-03-02T11:00:00Z: records"),
        ([], "its last record is of no window, the ledger goes on to 2026-03-02T11:00:00Z: records"),
    ],
)  # fmt: skip
def test_a_site_whose_account_ends_before_its_ledger_is_named(recorded: list[int], told: str | None) -> None:
    """Late releases come after those of later windows, in either."""
    ledger = [window(hour) for hour in (9, 11, 10)]
    found = gaps([*ledger, window(9, site="annex")], [*map(window, recorded), window(9, site="annex")])
    assert len(found) == (told is not None)
    assert all(each.startswith(f"account: site {SITE}: {told}") for each in found)


def test_a_model_of_people_is_named_once_though_several_policies_have_it() -> None:
    one, other = (
        model_of(small_policy(), truth=truth) for truth in (Truth(public=True), Truth(public=False, epsilon="0.5"))
    )
    found = people_truths([with_people(one), with_people(one, site="max_devices = 900"), with_people(other)])
    assert [each["model"] for each in found] == [one.digest, other.digest]
    assert found[1]["truth"] == {"public": False, "epsilon": "0.5"}


def test_a_site_of_devices_has_no_people_counters() -> None:
    assert counted_sites([POLICY]) == frozenset()
