"""The canonical document of a policy: every default written out, and the same policy when read back."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from connectors.lab.simulation.policy import policy_text as simulated_policy
from stream.errors import DataError, PolicyError
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.policy.attributes import AttributeRelease
from stream.policy.document import PolicyDocument, parse
from stream.release.validation import load_policy
from tests.support.day_policies import day_release, day_site, shared
from tests.support.small_building import outputs_of, people, policy_text

SMALL = """
[site.dbh]
sources = ["10.2.0.5"]
[[site.dbh.zones]]
id = "2011"
capacity = 60
access_points = ["5C:52:1E:00:20:11"]
[[audience]]
name = "public"
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
epsilon = { public = "0.10" }
[[release]]
name = "day"
query = "attributes"
[release.attributes.departure]
epsilon = { public = "1" }
sensitive = { after = "18:00" }
[release.attributes.arrival]
epsilon = { public = "0.5" }
sensitive = { before = "08:00" }
"""

DOCUMENT = (
    '{"v":1,"version":"VERSION","policy":{"site":{"dbh":{"name":"","timezone":"UTC","tick":300000000,'
    '"validity":600000000,"lateness":30000000,"max_devices":200000,"working_hours":["08:00","18:00"],'
    '"day_starts":null,"contribution":null,"residents":"count",'
    '"sources":["10.2.0.5"],"zones":[{"id":"2011","floor":"1","kind":"room","capacity":60,"max_count":null,'
    '"access_points":["5c:52:1e:00:20:11"],"base_radio":[],"access_point_names":[]}]}},'
    '"audience":[{"name":"public","description":""}],'
    '"release":[{"name":"occupancy","query":"count","mechanism":"laplace","smoother":"median","calendar":true,'
    '"noise":"laplace","unit":"window","delta":null,'
    '"zones":{"kind":[],"floor":[],"ids":[]},"states":{},"levels":["zone"],"shares":{},"prune":null,"w":null,'
    '"queries":[],"revise":[],"epsilon":{"public":"0.1"},"daily_budget":{},"refresh":86400000000,"w_budget":{}},'
    '{"name":"day","query":"attributes","mechanism":"osdprr","zones":{"kind":[],"floor":[],"ids":[]},'
    '"absent":"sensitive","attributes":{"departure":{"epsilon":{"public":"1"},"sensitive":{"after":"18:00",'
    '"before":null,"above":null,"below":null}},"arrival":{"epsilon":{"public":"0.5"},"sensitive":{"after":null,'
    '"before":"08:00","above":null,"below":null}}},"model":null,"cap":null,"guard":"static","days_per_month":null,'
    '"information_target":null}],"privacy":{"devices_per_person":3,"max_factor":20.085536923187668,'
    '"ticks_per_attribute":12,"w":12,"delta":"0.000001","factor_delta":null,"mobility":null,"meetings":[]},"pseudonym":{"ttl":null},'
    '"restricted":{"presence":false,"occupancy":false}}}'
)


def test_the_document_writes_out_every_default() -> None:
    """A default that changes changes the meaning of stored versions: it needs a new mechanism version."""
    policy = parse(SMALL)
    assert policy.document().decode() == DOCUMENT.replace("VERSION", policy.version)


AUDIENCE = "[[audience]]\npublic = "
DAYS = day_site()
BY_DAY = day_release("by-day", "filter", more=shared(floor="0.5", building="0.5"))


@pytest.mark.parametrize(
    "text",
    [
        SMALL,
        policy_text(),
        policy_text(site="max_devices = 200000\n"),
        simulated_policy(simulate(SimulatorConfig())),
        policy_text(BY_DAY, site=DAYS),
        policy_text(BY_DAY + 'delta = "1e-5"\n', site=DAYS),
        policy_text(BY_DAY.replace("gaussian", "laplace"), site=DAYS),
    ],
    ids=["small", "building", "a default written out", "example", "day", "day with delta", "day with laplace"],
)
def test_a_policy_is_the_same_when_read_back_from_its_document(text: Any) -> None:
    policy = parse(text)
    again = PolicyDocument.from_document(policy.document())
    assert again == policy
    assert again.version == policy.version
    assert again.document() == policy.document()


def test_a_public_audience_changes_neither_version_nor_document_nor_a_released_byte() -> None:
    before = policy_text()
    plain, public = (load_policy(text) for text in (before, before.replace("[[audience]]", f"{AUDIENCE}true", 1)))
    assert [audience.public for audience in (plain.audience[0], public.audience[0])] == [False, True]
    assert (public.version, public.document()) == (plain.version, plain.document())
    seen = people(hours=1)
    published = outputs_of(plain, seen)
    assert published
    assert outputs_of(public, seen) == published


@pytest.mark.parametrize("value", ['"yes"', "1"])
def test_public_is_true_or_false(value: str) -> None:
    with pytest.raises(PolicyError, match=r"audience.*public"):
        parse(policy_text().replace("[[audience]]", f"{AUDIENCE}{value}", 1))


def test_the_order_of_attributes_survives() -> None:
    again = PolicyDocument.from_document(parse(SMALL).document())
    release = again.release[1]
    assert isinstance(release, AttributeRelease)
    assert list(release.attributes) == ["departure", "arrival"]


ORDERED = """
[[release]]
name = "by-wing"
query = "count"
mechanism = "laplace"
states = {{ {states} }}
epsilon = {{ public = "1" }}
[[release]]
name = "day"
query = "attributes"
zones = {{ kind = "office" }}
model.joint = {{ "00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4 }}
{attributes}
"""
EAST, WEST = 'east = ["a", "b"]', 'west = ["c"]'
ARRIVAL = '[release.attributes.arrival]\nepsilon = { public = "1" }\nsensitive = { after = "10:00" }\n'
LEVEL = '[release.attributes.occupancy_level]\nepsilon = { public = "1" }\nsensitive = { below = 0.3 }\n'


def test_an_order_that_has_a_meaning_is_part_of_the_version() -> None:
    """A pattern of the model has its digits in the order of attributes; labels of noise name states in theirs."""
    versions = {
        parse(policy_text(ORDERED.format(states=states, attributes=attributes))).version
        for states in (f"{EAST}, {WEST}", f"{WEST}, {EAST}")
        for attributes in (ARRIVAL + LEVEL, LEVEL + ARRIVAL)
    }
    assert len(versions) == 4


def test_an_order_without_a_meaning_is_no_part_of_the_version() -> None:
    text = policy_text()
    other = text.replace(
        'facilities = "1", public = "0.1", board = "0.1"', 'board = "0.1", public = "0.1", facilities = "1"'
    )
    assert other != text
    assert load_policy(other).version == load_policy(text).version


def altered(**changes: object) -> bytes:
    return orjson.dumps(orjson.loads(parse(SMALL).document()) | changes)


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"{", altered(v=2), altered(version="0" * 16), altered(policy=None), altered(policy={"site": {}})],
)
def test_what_is_no_document_is_refused(document: Any) -> None:
    with pytest.raises(DataError, match="policy document: must be complete"):
        PolicyDocument.from_document(document)


def test_a_document_with_another_epsilon_is_refused() -> None:
    with pytest.raises(DataError):
        PolicyDocument.from_document(parse(SMALL).document().replace(b'"0.1"', b'"0.2"'))


def test_the_policy_file_takes_no_numbers_for_durations() -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        load_policy(SMALL.replace("[site.dbh]", "[site.dbh]\ntick = 300000000"))
