"""Published site metadata: zones and their names, never an address."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import pytest

import tacet
from connectors.keys import key_files
from connectors.storage.embedded.runner import embedded
from connectors.storage.site_metadata import SiteMetadata, site_metadata
from stream.errors import DataError, UsageError
from stream.release.validation import Policy, load_policy
from tests.support.small_building import FLOORS, ZONES, policy_text


def named(name: str) -> Policy:
    return load_policy(policy_text().replace('id = "a"', f'id = "a"\nmetadata = {{ name = "{name}" }}', 1))


@pytest.fixture
def key(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=True)
    return tmp_path / "key"


def run(policy: Policy, key: Path, store: Path, **options: Any) -> dict[str, SiteMetadata]:
    with embedded(policy, key, store, **options):
        pass
    return tacet.sites(store=store)


def test_a_site_is_its_zones_with_floor_kind_capacity_and_names(tmp_path: Path, key: Path) -> None:
    policy = named("Aula")
    found = run(policy, key, tmp_path / "s")
    assert found == site_metadata(policy)
    assert found["dbh"]["tick_seconds"] == policy.site["dbh"].tick // 1_000_000 > 0
    zones = {zone["zone"]: zone for zone in found["dbh"]["zones"]}
    assert {name: (zone["kind"], zone["floor"]) for name, zone in zones.items()} == {
        name: (kind, FLOORS[name]) for name, kind in ZONES.items()
    }
    assert {name: zone["metadata"] for name, zone in zones.items() if zone["metadata"]} == {"a": {"name": "Aula"}}


def test_it_holds_no_address_and_only_its_owner_reads_the_file(tmp_path: Path, key: Path) -> None:
    run(named("Aula"), key, tmp_path / "s")
    file = tmp_path / "s/private/_sites.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not re.search(r"([0-9a-f]{2}:){5}|[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+", file.read_text())


def test_a_name_that_is_changed_is_published_by_the_next_run_without_consent_to_a_policy(
    tmp_path: Path, key: Path
) -> None:
    run(named("Aula"), key, tmp_path / "s")
    assert run(named("Hall"), key, tmp_path / "s")["dbh"]["zones"][0]["metadata"] == {"name": "Hall"}


def test_a_store_of_an_earlier_version_has_none(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    assert tacet.sites(store=tmp_path) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"v":1}', '{"v":1,"sites":[]}'])
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private/_sites.json").write_text(text)
    with pytest.raises(DataError, match="must be what a run has written"):
        tacet.sites(store=tmp_path)


def test_a_file_of_a_later_version_is_refused_by_its_number_and_stays_as_it_is(tmp_path: Path, key: Path) -> None:
    run(named("Aula"), key, tmp_path / "s")
    file = tmp_path / "s/private/_sites.json"
    later = file.read_text().replace('"v": 1', '"v": 2', 1)
    assert later != file.read_text()
    file.write_text(later)
    with pytest.raises(UsageError, match=r"_sites\.json: must be of version 1, got 2; use the version of Tacet that"):
        tacet.sites(store=tmp_path / "s")
    with pytest.raises(UsageError, match=r"must be of version 1, got 2"):
        run(named("Hall"), key, tmp_path / "s")
    assert file.read_text() == later


@pytest.mark.parametrize("version", ["0", '"1"', "null", "1.5"])
def test_a_file_without_a_known_version_is_refused(tmp_path: Path, version: str) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private/_sites.json").write_text(f'{{"v":{version},"sites":{{}}}}')
    with pytest.raises(DataError, match="must be what a run has written"):
        tacet.sites(store=tmp_path)


async def test_within_an_event_loop_it_is_awaited(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    assert await tacet.read_metadata(store=tmp_path) == {}
    with pytest.raises(tacet.UsageError, match=r"await read_metadata"):
        tacet.sites(store=tmp_path)
