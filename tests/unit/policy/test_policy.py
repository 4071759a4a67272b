"""The policy file: what is refused, and with which message."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

import pytest

from connectors.lab.simulation.policy import policy_text as simulated_policy
from stream.errors import PolicyError
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.policy.counts import CountRelease
from stream.policy.document import parse
from stream.policy.fields import decimal_string, parse_duration, parse_epsilon
from stream.records import DAY, MINUTE, SECOND
from stream.release.validation import load_policy
from tests.support.small_building import COUNTS, policy_text

TEXT = policy_text()


def refusal(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        load_policy(text, "building.toml")
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert old in TEXT, old
    return TEXT.replace(old, new, 1)


RULES = [
    (
        'timezone = "America/Los_Angeles"',
        'timezone = "Mars/Olympus"',
        "site.dbh.timezone",
        "time zone",
        "'Mars/Olympus'",
    ),
    ('tick = "15min"', 'tick = "7min"', "site.dbh.tick", "divide a day", "'7min'"),
    ('tick = "15min"', 'tick = "30s"', "site.dbh.tick", "whole minutes", "'30s'"),
    ('tick = "15min"', "tick = 15", "site.dbh.tick", "duration such as", "15"),
    ('tick = "15min"', 'tick = "0min"', "site.dbh.tick", "must be above 0", "'0min'"),
    ('validity = "10min"', 'validity = "99999999999999999999d"', "site.dbh.validity", "at most 3660d", "'999"),
    ('validity = "10min"', f'validity = "{"9" * 5000}d"', "site.dbh.validity", "at most 3660d", "'999"),
    ('validity = "10min"', 'validity = "3661d"', "site.dbh.validity", "at most 3660d", "'3661d'"),
    ('validity = "10min"', 'validity = "ten"', "site.dbh.validity", "duration such as", "'ten'"),
    ('lateness = "30s"', "lateness = 30", "site.dbh.lateness", "duration such as", "30"),
    (
        'lateness = "30s"',
        'lateness = "30s"\ncolour = "red"',
        "site.dbh.colour",
        "is no key that a policy has; these are: contribution, day_starts, feed, floors, gap, home_realms",
        "",
    ),
    ('lateness = "30s"', 'lateness = "30s"\nmax_devices = 0', "site.dbh.max_devices", "must be above 0", "0"),
    (
        'lateness = "30s"',
        'lateness = "30s"\nworking_hours = ["18:00", "08:00"]',
        "site.dbh.working_hours",
        "begin before",
        "",
    ),
    (
        'lateness = "30s"',
        'lateness = "30s"\nworking_hours = ["08:00", "24:30"]',
        "working_hours[1]",
        "must be a time of day",
        "'24:30'",
    ),
    ('sources = ["127.0.0.1", "127.0.0.2"]', "sources = []", "site.dbh.sources", "at least 1", ""),
    ('"127.0.0.2"]', '"127.0.0.1"]', "site.dbh.sources", "unique", "127.0.0.1 twice"),
    ('"127.0.0.2"]', '"127.0.0.1/32"]', "site.dbh.sources", "unique", "127.0.0.1 twice"),
    ('"127.0.0.2"]', '"::1", "0:0::1"]', "site.dbh.sources", "unique", "::1 twice"),
    ('"127.0.0.2"]', '"cloud:mist", "cloud:mist"]', "site.dbh.sources", "unique", "cloud:mist twice"),
    ('"127.0.0.2"]', '"cloud:Mist"]', "site.dbh.sources", "addresses or blocks", "'cloud:Mist'"),
    ('"127.0.0.2"]', '"cloud:"]', "site.dbh.sources", "addresses or blocks", "'cloud:'"),
    ('"127.0.0.2"]', '"wlc.example.org"]', "site.dbh.sources", "addresses or blocks", "'wlc.example.org'"),
    ('"127.0.0.2"]', '"10.2.0.5/16"]', "site.dbh.sources", "addresses or blocks", "'10.2.0.5/16'"),
    ('id = "b"', 'id = "a"', "site.dbh.zones", "unique within their site", "a twice"),
    ('id = "b"', 'id = "b/c"', "site.dbh.zones[1].id", "id 'b/c', line 14): must be a name", "'b/c'"),
    ("capacity = 6", "capacity = true", "site.dbh.zones[0].capacity", "must be a whole number", "True"),
    ("capacity = 6", "capacity = 0", "site.dbh.zones[0].capacity", "must be above 0", "0"),
    ('["02:00:00:00:00:02"]', '["02:00:00:00:00:01"]', "policy", "one zone only", "02:00:00:00:00:01 twice"),
    ('["02:00:00:00:00:02"]', '["02-00-00-00-00-02"]', "zones[1].access_points[0]", "must be a radio address", "02-00"),
    (
        '[[audience]]\nname = "board"',
        '[[audience]]\nname = "public"',
        "policy",
        "audience names must be unique",
        "public twice",
    ),
    ('[[audience]]\nname = "board"', '[[audience]]\nname = "all"', "policy", "all audiences together", "'all'"),
    (
        '[[audience]]\nname = "board"',
        '[[audience]]\nname = "Board"',
        "audience[2].name",
        "must be a name of",
        "'Board'",
    ),
    ('name = "plain"', 'name = "grouped"', "policy", "release and query names must be unique", "grouped twice"),
    (
        'mechanism = "pegasus"',
        'mechanism = "magic"',
        "release[0].mechanism",
        "'laplace', 'pegasus', 'filter'",
        "'magic'",
    ),
    ('query = "count"', 'query = "sum"', "release[0]", "query", ""),
    (
        'facilities = "1", public',
        'facilities = "0", public',
        "release[0].epsilon.facilities",
        "positive decimal",
        "'0'",
    ),
    (
        'facilities = "1", public',
        'facilities = "-1", public',
        "release[0].epsilon.facilities",
        "positive decimal",
        "'-1'",
    ),
    ('facilities = "1", public', "facilities = 1.0, public", "release[0].epsilon.facilities", "in quotes", "1.0"),
    (
        'facilities = "1", public',
        'facilities = "nan", public',
        "release[0].epsilon.facilities",
        "positive decimal",
        "'nan'",
    ),
    ('facilities = "1", public', 'facilities = "101", public', "release[0].epsilon.facilities", "at most 100", "'101'"),
    (
        'facilities = "1", public',
        'facilities = "0.0000000001", public',
        "release[0].epsilon.facilities",
        "nine decimals",
        "0.0000000001",
    ),
    ('facilities = "1", public', 'facilities = "0.00001", public', "release[0]", "with pegasus", "got 0.00001"),
    ('facilities = "1", public', 'managers = "1", public', "policy", "not declared", "managers"),
    ('{ board = "10" }', '{ board = "1_0" }', "release[1].daily_budget.board", "positive decimal", "'1_0'"),
    ('{ board = "10" }', '{ board = "1e-99999999" }', "release[1].daily_budget.board", "nine decimals", "1e-9999"),
    (
        'daily_budget = { board = "10" }',
        'daily_budget = { board = "0.2" }',
        "release[1]",
        "pay for at least one release",
        "got 0.2",
    ),
    ('daily_budget = { board = "10" }', 'daily_budget = { public = "10" }', "release[1]", "has an epsilon", "public"),
    ('levels = ["zone", "building"]', 'levels = ["building"]', "release[1]", "levels must include 'zone'", "building"),
    (
        'levels = ["zone", "building"]',
        'levels = ["zone", "wing"]',
        "release[1].levels[1]",
        "'floor' or 'building'",
        "'wing'",
    ),
    ('levels = ["zone", "building"]', 'levels = ["zone", "zone"]', "release[1].levels", "unique", "zone twice"),
    ('zones = { kind = "hall" }', 'zones = { kind = "kitchen" }', "policy", "selects no zone", "'smooth'"),
    ('kind = ["hall", "lobby"]', 'kind = ["hall", "loby"]', "policy", "no zone has", "kind loby"),
    (
        "[release.attributes.arrival]",
        "[release.attributes.lunch]",
        "release[3].attributes.lunch",
        "'arrival'",
        "'lunch'",
    ),
    (
        'sensitive = { after = "10:00" }',
        "sensitive = { above = 3 }",
        "release[3].attributes",
        "after or before",
        "above",
    ),
    (
        'sensitive = { after = "10:00" }',
        "sensitive = { }",
        "release[3].attributes.arrival.sensitive",
        "at least one",
        "",
    ),
    (
        'sensitive = { after = "10:00" }',
        'sensitive = { after = "25:00" }',
        "arrival.sensitive.after",
        "must be a time of day",
        "'25:00'",
    ),
    ("sensitive = { below = 0.3 }", "sensitive = { below = nan }", "occupancy_level.sensitive.below", "finite", "nan"),
]


@pytest.mark.parametrize(("old", "new", "place", "rule", "value"), RULES, ids=[rule[1][-40:] for rule in RULES])
def test_a_broken_rule_is_refused_with_file_key_rule_and_value(
    old: Any, new: Any, place: Any, rule: Any, value: Any
) -> None:
    text = refusal(changed(old, new))
    assert text.startswith("building.toml: ")
    for part in (place, rule, value):
        assert part in text


@pytest.mark.parametrize(
    ("head", "place"),
    [("max_factor = inf", "privacy.max_factor"), ("max_factor = 1", "privacy.max_factor"),
     ("devices_per_person = 0", "privacy.devices_per_person"), ("ticks_per_attribute = 0", "ticks_per_attribute")],
)  # fmt: skip
def test_bounds_that_bound_nothing_are_refused(head: Any, place: Any) -> None:
    assert place in refusal(policy_text(head=f"[privacy]\n{head}\n"))


def test_an_attribute_of_a_zone_belongs_to_one_release() -> None:
    """Under two tests of what is sensitive, one release would show what the other withholds."""
    second = """
[[release]]
name = "also"
query = "attributes"
zones = { ids = "x" }
[release.attributes.arrival]
epsilon = { public = "1" }
sensitive = { before = "07:00" }
"""
    assert "dbh/x/arrival twice" in refusal(TEXT + second)
    parse(TEXT + second.replace("attributes.arrival", "attributes.departure"))


@pytest.mark.parametrize(
    ("tick", "hours"), [("5min", ("08:01", "08:04")), ("1h", ("08:10", "08:50")), ("1d", ("08:00", "18:00"))]
)
def test_working_hours_of_which_a_level_is_told_hold_a_tick(tick: Any, hours: Any) -> None:
    site = f'working_hours = ["{hours[0]}", "{hours[1]}"]'
    assert (
        f"site.dbh.working_hours: must contain a tick, because occupancy_level refers to ticks, got {hours[0]} to"
        in refusal(policy_text(tick=tick, site=site))
    )
    load_policy(policy_text(COUNTS, tick=tick, site=site))


def test_a_tick_at_the_end_of_working_hours_is_not_in_them() -> None:
    hours = {("08:00", "18:00"): (96, 216), ("08:01", "08:06"): (97, 98), ("00:00", "24:00"): (0, 288)}
    for written, ticks in hours.items():
        site = policy_text(tick="5min", site=f'working_hours = ["{written[0]}", "{written[1]}"]')
        assert parse(site).site["dbh"].working_ticks == ticks


def test_a_device_has_a_bounded_number_of_names_that_may_hold_presence() -> None:
    """Each sighting ends them, also those that another connector gave."""
    load_policy(policy_text(head='[pseudonym]\nttl = "10s"\n'))
    text = refusal(policy_text(head='[pseudonym]\nttl = "9s"\n'))
    for part in ("pseudonym.ttl", "at least one 60th", "got 9 s and 600 s at dbh"):
        assert part in text


def test_brackets_without_end_are_not_toml() -> None:
    assert refusal("a = " + "[" * 5000) == "building.toml: not TOML: brackets are nested too deeply"


def test_what_is_not_toml_is_refused_with_its_line() -> None:
    assert re.match(r"building.toml: not TOML: .*line 3", refusal("\n\n[site\n"))


def test_a_policy_with_several_errors_tells_each_on_its_line() -> None:
    text = changed('tick = "15min"', 'tick = "7min"').replace('mechanism = "filter"', 'mechanism = "x"')
    lines = refusal(text).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("building.toml: ") for line in lines)


def test_a_policy_whose_only_release_is_wrong_tells_that_and_nothing_else() -> None:
    head = '[[release]]\nname = "r"\nquery = "count"\nmechanism = "laplace"\n'
    only = head + 'states = { s = [] }\nepsilon = { public = "1" }\n'
    assert (
        refusal(policy_text(only))
        == "building.toml: release[0] (name 'r', line 50): states.s must have at least one zone, got none"
    )
    assert "release: must have at least 1 in its list" in refusal(policy_text(head="release = []\n", releases=""))


def test_the_version_is_the_meaning_not_the_writing() -> None:
    policy = load_policy(TEXT)
    assert load_policy("# a comment\n" + TEXT.replace('"0.5"', '"0.50"')).version == policy.version
    others = [
        TEXT.replace('public = "0.1"', 'public = "0.11"'),
        TEXT.replace('lateness = "30s"', 'lateness = "31s"'),
        TEXT.replace('after = "10:00"', 'after = "10:01"'),
        TEXT.replace('floor = "1"', 'floor = "3"', 1),
        policy_text(head="[privacy]\ndevices_per_person = 4\n"),
    ]
    assert len({load_policy(text).version for text in [TEXT, *others]}) == 6


def test_epsilons_are_kept_exactly() -> None:
    policy = load_policy(TEXT.replace('"0.25"', '"0.123456789"').replace('board = "10"', 'board = "28.8"'))
    plain = policy.release[1]
    assert isinstance(plain, CountRelease)
    assert plain.epsilon["board"] == Fraction(123456789, 1_000_000_000)
    assert decimal_string(plain.epsilon["board"]) == "0.123456789"
    assert plain.daily_budget["board"] == Fraction("28.8")
    assert decimal_string(parse_epsilon("1e-9")) == "0.000000001"


def test_durations_have_units() -> None:
    assert [parse_duration(text) for text in ("500ms", "30s", "5min", "1h", "1d")] == [
        500_000, 30 * SECOND, 5 * MINUTE, 60 * MINUTE, DAY,
    ]  # fmt: skip


def test_addresses_of_access_points_are_read_in_any_case() -> None:
    policy = load_policy(TEXT.replace("02:00:00:00:00:02", "02:AB:00:00:00:02"))
    assert policy.access_points()["02:ab:00:00:00:02"] == ("dbh", "b")


def test_the_largest_count_is_ten_times_the_capacity_and_twenty() -> None:
    policy = load_policy(TEXT.replace("capacity = 6", "capacity = 6\nmax_count = 33", 1))
    assert [zone.largest for zone in policy.site["dbh"].zones] == [33, 80, 80, 80, 30, 30]


def test_the_simulated_building_comes_with_a_policy_that_keeps_its_promises() -> None:
    load_policy(simulated_policy(simulate(SimulatorConfig(scale=0.05))))


def zones(*lines: str) -> str:
    """A policy of one site with a zone for each line of keys."""
    head = '[site.dbh]\nsources = ["10.2.0.5"]\n'
    each = "".join(f'[[site.dbh.zones]]\nid = "{n}"\ncapacity = 9\n{line}\n' for n, line in enumerate(lines))
    return head + each + '[[audience]]\nname = "a"\n' + COUNTS_OF_ALL


COUNTS_OF_ALL = """[[release]]
name = "counts"
query = "count"
mechanism = "laplace"
epsilon = { a = "1" }
"""


def test_a_base_radio_stands_for_all_addresses_that_share_its_first_bits() -> None:
    policy = load_policy(
        zones('base_radio = "24:DE:C6:CC:DD:E0/44"', 'access_points = ["24:de:c6:cc:dd:f0"]',
              'base_radio = ["24:de:c6:00:00:00/40", "24:de:c6:00:01:00/47"]')
    )  # fmt: skip
    assert policy.access_points() == {
        "24:de:c6:cc:dd:e0": ("dbh", "0"),
        "24:de:c6:cc:dd:f0": ("dbh", "1"),
        "24:de:c6:00:00:00": ("dbh", "2"),
        "24:de:c6:00:01:00": ("dbh", "2"),
    }
    assert policy.site["dbh"].zones[0].base_radio == ("24:de:c6:cc:dd:e0/44",)


@pytest.mark.parametrize(
    "written",
    ["24:de:c6:cc:dd:e0", "24:de:c6:cc:dd:e1/44", "24:de:c6:cc:dd:e0/48", "24:de:c6:cc:dd:e0/24", "24:de:c6/44"],
)
def test_a_base_radio_is_an_address_with_zeros_behind_its_mask(written: Any) -> None:
    text = refusal(zones(f"base_radio = {json.dumps(written)}"))
    for part in ("site.dbh.zones[0].base_radio", "'24:de:c6:cc:dd:e0/44'", repr(written)):
        assert part in text


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ('base_radio = "24:de:c6:cc:dd:e0/44"', 'access_points = ["24:de:c6:cc:dd:e7"]'),
        ('base_radio = "24:de:c6:cc:dd:e0/44"', 'base_radio = "24:de:c6:cc:dd:e8/45"'),
        ('base_radio = "24:de:c6:cc:dd:e0/44"', 'base_radio = "24:de:c6:cc:dd:e0/44"'),
        ('base_radio = "24:de:c6:cc:dd:e8/45"', 'base_radio = "24:de:c6:cc:dd:00/40"'),
    ],
)
def test_no_radio_address_can_mean_two_zones(one: Any, two: Any) -> None:
    for pair in ((one, two), (two, one)):
        assert "in one zone only" in refusal(zones(*pair))


def test_a_zone_without_any_radio_address_is_refused() -> None:
    text = refusal(zones('access_point_names = ["lobby"]'))
    for part in ("site.dbh.zones[0]", "access_points or base_radio"):
        assert part in text


def test_a_name_of_an_access_point_stands_for_one_zone_in_whatever_case() -> None:
    one = 'access_points = ["02:00:00:00:00:01"]\naccess_point_names = ["Lobby"]'
    two = 'access_points = ["02:00:00:00:00:02"]\naccess_point_names = ["LOBBY"]'
    assert "access point's name" in refusal(zones(one, two))
    load_policy(zones(one, two.replace("LOBBY", "lobby 2")))
