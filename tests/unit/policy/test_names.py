"""The file of names: what it says is shown, what the policy does not have is refused, and no promise knows of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from connectors.cli.main import tacet
from connectors.cli.options import read_policy
from connectors.operations.policy.contracts import SiteMetadata as MetadataContract
from connectors.serve.policy_description import described_site
from connectors.serve.room import places_of
from connectors.serve.startup import ServeConfig, plans_of
from connectors.sinks.mqtt import discovery
from connectors.storage.site_metadata import display_name, site_metadata
from stream.errors import DataError, PolicyError
from stream.policy.document import PolicyDocument
from stream.release.validation import Policy, load_policy
from tests.support.small_building import outputs_of, people, policy_text

NAMES = """
[site.dbh]
name = "Bren Hall"

[[site.dbh.floors]]
id = "2"
name = "Under the roof"
plan = "plans/2.svg"

[[site.dbh.floors]]
id = "1"

[site.dbh.zones]
a = "Great hall"
x = "Office of the dean"
"""
POLICY = policy_text().replace("[site.dbh]\n", '[site.dbh]\nnames = "names.toml"\n', 1)
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><path id="c" d="M0 0L1 1"/></svg>'
HOSTILE = "<img src=x onerror=alert(1)> **x** {{ 7*7 }}"


def reader(names: str) -> Callable[[str], str]:
    return {"names.toml": names}.__getitem__


def policy(names: str = NAMES, text: str = POLICY) -> Policy:
    return load_policy(text, "policy.toml", reader(names))


def installed(folder: Path, names: str = NAMES) -> Path:
    """Write a policy, its names and a plan into a folder; return the policy's path."""
    (folder / "plans").mkdir()
    (folder / "plans/2.svg").write_text(SVG)
    (folder / "names.toml").write_text(names)
    (folder / "policy.toml").write_text(POLICY)
    return folder / "policy.toml"


def test_names_change_neither_version_nor_document_nor_a_released_byte() -> None:
    plain, named = load_policy(policy_text()), policy()
    assert (named.version, named.document()) == (plain.version, plain.document())
    assert PolicyDocument.from_document(named.document()).site["dbh"].names is None
    seen = people(hours=1)
    published = outputs_of(plain, seen)
    assert published
    assert outputs_of(named, seen) == published


def test_the_page_the_rooms_and_the_metadata_show_the_names_and_the_order_of_floors() -> None:
    named = policy()
    site = described_site(named, "dbh", {}, ("public",))
    assert site.name == "Bren Hall"
    assert [(floor.floor, floor.name) for floor in site.floors] == [("2", "Under the roof"), ("1", "1")]
    places = {place.node: place.name for place in places_of(named, "dbh", "public")}
    assert (places["floor:2"], places["floor:1"], places["zone:a"]) == ("Under the roof", "1", "Great hall")
    metadata = site_metadata(named)["dbh"]
    assert metadata["name"] == "Bren Hall"
    assert metadata["floors"] == [{"floor": "2", "name": "Under the roof"}, {"floor": "1", "name": "1"}]
    assert {zone["zone"]: zone["metadata"] for zone in metadata["zones"] if zone["metadata"]} == {
        "a": {"name": "Great hall"}, "x": {"name": "Office of the dean"},
    }  # fmt: skip
    assert MetadataContract.model_validate(metadata)
    assert "floors" not in site_metadata(load_policy(policy_text()))["dbh"]


def test_home_assistant_and_mails_call_places_by_their_names() -> None:
    sites = site_metadata(policy())
    topics = ["t/dbh/floor/2/occupancy", "t/dbh/floor/1/occupancy", "t/dbh/zone/a/occupancy"]
    bodies = "".join(discovery("h", "t", topics, sites).values())
    for title in ('"Under the roof occupancy"', '"floor 1 occupancy"', '"Great hall occupancy"', '"name":"Bren Hall"'):
        assert title in bodies
    assert [display_name(None, node) for node in ("building", "floor:2", "zone:a")] == [None, None, None]


def test_the_file_counts_where_the_policy_has_names_too() -> None:
    text = POLICY.replace('id = "a"', 'id = "a"\nmetadata = { name = "Old", bacnet = "AV-1" }', 1)
    text = text.replace("[site.dbh]\n", '[site.dbh]\nname = "Old"\nfloors = ["1", "2"]\n', 1)
    site = policy(text=text).site["dbh"]
    assert site.title("dbh") == "Bren Hall"
    assert site.floors == ("2", "1")
    assert site.zones[0].metadata == {"name": "Great hall", "bacnet": "AV-1"}
    only_zones = policy("[site.dbh.zones]\nb = 'B'\n", text).site["dbh"]
    assert (only_zones.title("dbh"), only_zones.floors, only_zones.zones[0].title) == ("Old", ("1", "2"), "Old")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('x = "Off', 'z9 = "Off', "names.toml: site.dbh.zones: must name zones of the policy, got 'z9'"),
        ('id = "1"', 'id = "3"', "names.toml: site.dbh.floors: must name floors of the policy's zones, got '3'"),
        ('[[site.dbh.floors]]\nid = "1"', "", "names.toml: site.dbh.floors: must name every floor of the policy's"),
        ('id = "1"', 'id = "2"', "names.toml: site.dbh.floors: floors must be listed once, got 2 twice"),
        ("[site.dbh]\n", "[site.east]\n[site.dbh]\n", "names.toml: site: must name sites of the policy, got 'east'"),
        (NAMES, "[site.east]", "names.toml: site: must name sites of the policy, got 'east'"),
        ('"Great hall"', '"02:00:00:00:0e:01"', "names.toml: site.dbh.zones.a: must contain no address"),
        ('"Great hall"', '"a\\u001bb"', "names.toml: site.dbh.zones.a: must be 1 to 200 printable characters"),
        ("2.svg", "2.png", "must be the path of a file that ends in .svg or .geojson, got 'plans/2.png'"),
        ('name = "Bren', 'title = "Bren', "names.toml: site.dbh.title: is no key that a file of names has"),
        ('name = "Bren', "name = Bren", "policy.toml: names.toml: not TOML: Invalid value"),
    ],
)  # fmt: skip
def test_what_the_policy_does_not_have_is_refused_with_file_key_and_value(old: str, new: str, said: str) -> None:
    assert old in NAMES
    with pytest.raises(PolicyError) as refused:
        policy(NAMES.replace(old, new, 1))
    assert said in str(refused.value)
    assert str(refused.value).startswith("policy.toml: names.toml: ")


def test_names_come_from_a_file_alone() -> None:
    inline = policy_text() + '\n[site.dbh.names]\nname = "x"\n'
    with pytest.raises(PolicyError, match=r"site\.dbh\.names: must be the path of a file of names"):
        load_policy(inline)
    with pytest.raises(
        PolicyError, match=r"site\.dbh\.names: must not name a file if the policy was not read from a file"
    ):
        load_policy(POLICY)


@pytest.mark.parametrize("identity", ["", "id = ['a']", "id = 5"])
def test_a_zone_without_a_valid_id_is_refused_beside_a_file_of_names(identity: str) -> None:
    text = POLICY.replace('id = "b"', identity, 1)
    with pytest.raises(PolicyError, match=r"site\.dbh\.zones\[1\]\.id"):
        policy(text=text)


def test_a_missing_file_of_names_is_refused(tmp_path: Path) -> None:
    path = installed(tmp_path)
    (tmp_path / "names.toml").unlink()
    with pytest.raises(PolicyError, match=r"site\.dbh\.names: file cannot be read .*, got 'names\.toml'"):
        read_policy(path)


def test_plans_are_read_relative_to_the_file_and_replace_those_of_the_folder(tmp_path: Path) -> None:
    path = installed(tmp_path)
    (tmp_path / "other/dbh").mkdir(parents=True)
    for floor, zone in (("1", "a"), ("2", "d")):
        (tmp_path / f"other/dbh/{floor}.svg").write_text(SVG.replace('id="c"', f'id="{zone}"'))
    config = ServeConfig(read_policy(path), ("public",), plans=tmp_path / "other", policy_folder=tmp_path)
    assert {place: list(plan.zones) for place, plan in plans_of(config).items()} == {
        ("dbh", "1"): ["a"], ("dbh", "2"): ["c"],
    }  # fmt: skip


@pytest.mark.parametrize(("content", "rule"), [(None, "must be a file that can be read"), ("<svg/>", "must be an svg")])
def test_check_and_serve_refuse_a_plan_that_is_missing_or_none(tmp_path: Path, content: str | None, rule: str) -> None:
    path = installed(tmp_path)
    assert CliRunner().invoke(tacet, ["policy", "check", str(path)]).exit_code == 0
    (tmp_path / "plans/2.svg").unlink()
    if content is not None:
        (tmp_path / "plans/2.svg").write_text(content)
    refused = CliRunner().invoke(tacet, ["policy", "check", str(path)])
    assert isinstance(refused.exception, PolicyError)
    for part in (f"{tmp_path / 'names.toml'}: site.dbh.floors (id '2').plan: ", rule, "plans/2.svg"):
        assert part in str(refused.exception)
    with pytest.raises(DataError, match=rule):
        plans_of(ServeConfig(read_policy(path), ("public",), policy_folder=tmp_path))


def test_a_hostile_name_stays_a_text() -> None:
    named = policy(NAMES.replace("Under the roof", HOSTILE).replace("Great hall", HOSTILE))
    assert described_site(named, "dbh", {}, ("public",)).floors[0].name == HOSTILE
    assert display_name(site_metadata(named)["dbh"], "floor:2") == HOSTILE
