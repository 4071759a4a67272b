"""From a list of access points to a policy: what a list may contain, what it becomes, and what is refused."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from connectors.cli.main import tacet
from connectors.cli.options import read_policy
from connectors.operations.inventory.access_points import columns_of, kind_of, last_part, name_of, read_inventory, stem
from connectors.operations.inventory.policy_text import Building, policy_text
from connectors.operations.inventory.zones import places_of
from connectors.operations.policy import comparison
from connectors.operations.policy.quality import Quality
from connectors.sources.ingest.addresses import address_of
from stream.errors import UsageError
from stream.policy.counts import Count, CountRelease
from stream.policy.fields import parse_epsilon
from stream.records import MINUTE
from stream.release.count_guarantees import count_guarantees
from stream.release.validation import Policy, load_policy
from tests.support.documents import ROOT

EXAMPLES = ROOT / "docs/examples/inventory"
MAPPED = {
    "plain.csv": (),
    "cisco-9800.csv": ("ap=Radio MAC,name=AP Name,floor=Location",),
    "cisco-prime.csv": ("ap=Base Radio MAC Address,name=AP Name,floor=Map Location",),
    "aruba-airwave.csv": ("ap=LAN MAC Address,name=Device,floor=Folder",),
    "aruba-central.csv": ("ap=MAC,name=DEVICE NAME,site=SITE,floor=LABELS",),
    "meraki.csv": ("ap=MAC address,name=Name", "site=Network,floor=Tags"),
}
"""Example -> which of its columns means what, as the guide has it."""


def initialised(path: Path, *options: str) -> Result:
    """Return what 'policy init' writes, without the simulated day that it tries unless ``--count`` is given."""
    return CliRunner().invoke(tacet, ["policy", "init", "--access-points", str(path), "--count", "ticks", *options])


def made(path: Path, *options: str) -> Policy:
    """Return the policy that a list becomes; it passes every check of 'policy check'."""
    done = initialised(path, *options)
    assert done.exit_code == 0, done.output
    return load_policy(done.stdout, "made")


def listed(folder: Path, *rows: str, header: str = "ap,name,site,floor,zone,kind,capacity") -> Path:
    path = folder / "aps.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def refusal(folder: Path, *rows: str, **header: str) -> str:
    with pytest.raises(UsageError) as refused:
        read_inventory(listed(folder, *rows, **header), {})
    return str(refused.value).replace(f"{folder}/", "")


# --- what is made -------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", MAPPED)
def test_every_example_becomes_a_policy_that_is_accepted(example: str) -> None:
    columns = [word for text in MAPPED[example] for word in ("--columns", text)]
    policy = made(EXAMPLES / example, *columns, "--controllers", "10.2.0.5", "--timezone", "Europe/Berlin")
    (site,) = policy.site.values()
    assert {zone.floor for zone in site.zones} in ({"1", "2"}, {"Floor-1", "Floor-2"}, {"floor-1", "floor-2"})
    assert (site.sources, site.timezone) == (("10.2.0.5",), "Europe/Berlin")


@pytest.mark.parametrize(
    ("by", "controllers", "more", "probed"),
    [
        ("cisco-lwapp", "10.2.0.5", (), "snmp"),
        ("aruba", "10.2.0.5,10.2.0.6", ("--snmp-user", "tacet"), "snmp"),
        ("unifi", "10.2.0.7", (), "icmp"),
        ("mist", "cloud:mist", (), None),
    ],
)
def test_controllers_may_be_polled_and_what_is_covered_follows_from_a_probe(
    tmp_path: Path, by: str, controllers: str, more: tuple[str, ...], probed: str | None
) -> None:
    rows = listed(tmp_path, "5c:52:1e:00:20:10,a,,1,,,50")
    (site,) = made(rows, "--controllers", controllers, "--poll", by, *more).site.values()
    user = more[1] if more else None
    sources = controllers.split(",")
    assert [(poll.source, poll.by, poll.user) for poll in site.poll] == [(each, by, user) for each in sources]
    assert [(probe.source, probe.by, probe.user) for probe in site.probe] == [
        (each, probed, user) for each in sources if probed
    ]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (("--poll", "aruba"), "--poll: needs --controllers"),
        (("--poll", "aruba", "--controllers", "10.2.0.0/16"), "must be one address each with --poll aruba"),
        (("--poll", "mist", "--controllers", "10.2.0.5"), "must be cloud:NAME each with --poll mist"),
        (("--snmp-user", "tacet"), "--snmp-user: must be given with a --poll over SNMP"),
    ],
)
def test_a_poll_that_cannot_be_is_refused(tmp_path: Path, given: tuple[str, ...], rule: str) -> None:
    done = initialised(listed(tmp_path, "5c:52:1e:00:20:10,a,,1,,,50"), *given)
    assert isinstance(done.exception, UsageError)
    assert rule in str(done.exception)


def test_whoever_works_a_day_counts_to_its_end(tmp_path: Path) -> None:
    policy = made(listed(tmp_path, "5c:52:1e:00:20:10,a,,1,,,50"))
    assert {site.bounded_to for site in policy.site.values()} == {"12h"}


def test_every_example_is_there() -> None:
    assert sorted(path.name for path in EXAMPLES.iterdir()) == sorted(MAPPED)


def test_rows_of_one_zone_make_one_and_say_its_floor_kind_and_capacity() -> None:
    zones = {zone.id: zone for zone in made(EXAMPLES / "plain.csv").site["building"].zones}
    reading = zones["reading-room"]
    assert list(zones) == ["reading-room", "cafe", "stacks", "director"]
    assert (reading.floor, reading.kind, reading.capacity) == ("1", "hall", 120)
    assert reading.access_points == ("5c:52:1e:00:20:10", "5c:52:1e:00:20:20")
    assert reading.access_point_names == ("lib-1-reading-ap1", "lib-1-reading-ap2")
    assert dict(zones["cafe"].metadata) == {"name": "café"}


GROUPED = (
    ("floor", {"floor-1": 3, "floor-2": 1}),
    ("name", {"lib-1-reading": 2, "lib-1-cafe": 1, "lib-2-stacks": 1}),
    ("access-point", {"lib-1-reading-ap1": 1, "lib-1-reading-ap2": 1, "lib-1-cafe-ap1": 1, "lib-2-stacks-ap1": 1}),
)


@pytest.mark.parametrize(("group", "expected"), GROUPED)
def test_where_no_zone_is_named_access_points_are_grouped_as_asked(
    tmp_path: Path, group: str, expected: dict[str, int]
) -> None:
    path = listed(
        tmp_path,
        "5c:52:1e:00:20:10,lib-1-reading-ap1,1",
        "5c:52:1e:00:20:20,lib-1-reading-ap2,1",
        "5c:52:1e:00:20:30,lib-1-cafe-ap1,1",
        "5c:52:1e:00:20:40,lib-2-stacks-ap1,2",
        header="ap,name,floor",
    )
    zones = made(path, "--group", group).site["building"].zones
    assert {zone.id: len(zone.radios) for zone in zones} == expected


@pytest.mark.parametrize("location", ["default location", "Default Location", "default-location", "DEFAULT_LOCATION"])
def test_a_location_that_nobody_has_set_is_no_floor(tmp_path: Path, location: str) -> None:
    """Cisco's controllers show 'default location' then."""
    path = listed(tmp_path, f"5c:52:1e:00:20:10,a,{location}", "5c:52:1e:00:20:20,b,1", header="ap,zone,floor")
    floors = {zone.id: zone.floor for zone in made(path).site["building"].zones}
    assert floors == {"a": "unknown", "b": "1"}
    assert 'floor = "unknown"  # CHECK: not given' in initialised(path).stdout
    assert 'floor = "1"\n' in initialised(path).stdout


def test_access_points_without_a_floor_are_on_no_other_floor(tmp_path: Path) -> None:
    path = listed(tmp_path, "5c:52:1e:00:20:10,1", "5c:52:1e:00:20:20,", "5c:52:1e:00:20:30,default location",
                  header="ap,floor")  # fmt: skip
    zones = {zone.id: (zone.floor, len(zone.radios)) for zone in made(path).site["building"].zones}
    assert zones == {"floor-1": ("1", 1), "floor-unknown": ("unknown", 2)}


def test_names_that_differ_in_the_last_part_make_a_zone_on_each_floor(tmp_path: Path) -> None:
    path = listed(tmp_path, "5c:52:1e:00:20:10,ap-1,1", "5c:52:1e:00:20:20,ap-2,1", "5c:52:1e:00:20:30,ap-3,Lib > 2",
                  "5c:52:1e:00:20:40,ap-4,", "5c:52:1e:00:20:50,hall-1,2", header="ap,name,floor")  # fmt: skip
    zones = {zone.id: (zone.floor, len(zone.radios)) for zone in made(path, "--group", "name").site["building"].zones}
    assert zones == {
        "ap-floor-1": ("1", 2), "ap-floor-2": ("2", 1), "ap-floor-unknown": ("unknown", 1), "hall": ("2", 1),
    }  # fmt: skip


def test_floors_of_one_site_do_not_divide_the_zones_of_another(tmp_path: Path) -> None:
    path = listed(tmp_path, "5c:52:1e:00:20:10,ap-1,1,n", "5c:52:1e:00:20:20,ap-2,2,s", header="ap,name,floor,site")
    policy = made(path, "--group", "name")
    assert {(name, zone.id) for name, site in policy.site.items() for zone in site.zones} == {("n", "ap"), ("s", "ap")}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("columns", [(), ("--columns", "ap=Radio MAC,name=AP Name,floor=Location")])
def test_cells_may_be_separated_by_semicolons_or_tabs(tmp_path: Path, delimiter: str, columns: tuple[str, ...]) -> None:
    header = ("AP Name", "Radio MAC", "Location") if columns else ("name", "ap", "floor")
    rows = (header, ("a", "5c52.1e00.2010", '"Library, Floor 1"'), ("b", "5c52.1e00.2020", '"Library; 2"'))
    path = tmp_path / "aps.csv"
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    (first, second) = made(path, *columns).site["building"].zones
    assert (first.floor, second.floor) == ("Library-Floor-1", "Library-2")


def test_a_column_that_is_missing_from_semicolons_is_named_among_them(tmp_path: Path) -> None:
    path = listed(tmp_path, f"{AP};a", header="BSSID;Name")
    with pytest.raises(UsageError, match=r"line 1: must have the column 'MAC' \(for ap\); it has: BSSID, Name$"):
        read_inventory(path, {"ap": "MAC"})


PASTED = (
    """WLC-9800#show ap summary
Number of APs: 2

CC = Country Code
RD = Regulatory Domain

AP Name                 Slots AP Model      Ethernet MAC   Radio MAC      CC   RD   IP Address  State        Location
---------------------------------------------------------------------------------------------------------------------
lib-1-reading-ap1       2     C9120AXI-E    5c52.1e00.1010 5c52.1e00.2010 DE   -E   10.2.1.11   Registered   Floor 1
""",
    """Number of APs.................................... 2

Global AP User Name.............................. Not Configured

AP Name             Slots  AP Model             Ethernet MAC       Location          Country     IP Address
------------------  -----  -------------------  -----------------  ----------------  ----------  ---------------
lib-1-reading-ap1   2      AIR-CAP3702I-E-K9    5c:52:1e:00:10:10  default location  DE          10.2.1.11
""",
    """AP Name             Slots  AP Model             Ethernet MAC       Location
lib-1-reading-ap1   2      AIR-CAP3702I-E-K9    5c:52:1e:00:10:10  default location
""",
)


@pytest.mark.parametrize("text", PASTED)
@pytest.mark.parametrize("columns", [{}, {"ap": "Radio MAC", "name": "AP Name"}])
def test_the_output_of_show_ap_summary_is_refused_by_its_name(
    tmp_path: Path, text: str, columns: dict[str, str]
) -> None:
    path = tmp_path / "aps.txt"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_inventory(path, columns)
    assert "is the output of 'show ap summary', whose columns are separated by spaces" in str(refused.value)
    assert "AP Name,Radio MAC,Location" in str(refused.value)


def test_capacities_of_what_is_grouped_add_up_and_what_nobody_said_is_marked(tmp_path: Path) -> None:
    path = listed(tmp_path, "5c:52:1e:00:20:10,30", "5c:52:1e:00:20:20,", header="ap,capacity")
    (zone,) = made(path).site["building"].zones
    assert zone.capacity == 30 + 25
    assert "capacity = 55  # CHECK" in initialised(path).stdout


def test_a_zone_that_one_row_names_has_the_capacity_that_a_row_says(tmp_path: Path) -> None:
    """Another row belongs to it by its floor."""
    path = listed(tmp_path, "5c:52:1e:00:20:10,1,floor-1,40", "5c:52:1e:00:20:20,1,,", header="ap,floor,zone,capacity")
    (zone,) = made(path).site["building"].zones
    assert (zone.id, len(zone.radios), zone.capacity) == ("floor-1", 2, 40)
    assert "capacity = 40\n" in initialised(path).stdout


def test_sites_are_those_of_the_list(tmp_path: Path) -> None:
    path = listed(tmp_path, "5c:52:1e:00:20:10,north,1", "5c:52:1e:00:20:20,Süd,1", "5c:52:1e:00:20:30,,1",
                  header="ap,site,floor")  # fmt: skip
    assert list(made(path, "--site", "rest").site) == ["north", "Sued", "rest"]


def test_a_controller_that_is_not_named_is_nobody() -> None:
    done = initialised(EXAMPLES / "plain.csv")
    assert load_policy(done.stdout, "made").site["building"].sources == ("127.0.0.1",)
    assert re.search(r"^sources = .*# CHECK", done.stdout, flags=re.M)


def test_where_traps_give_bssids_a_base_radio_stands_for_all_of_an_access_point(tmp_path: Path) -> None:
    path = listed(tmp_path, "24:de:c6:cc:dd:e7", "24:de:c6:cc:dd:f1", header="ap")
    (zone,) = made(path, "--shared-bits", "44").site["building"].zones
    assert zone.base_radio == ("24:de:c6:cc:dd:e0/44", "24:de:c6:cc:dd:f0/44")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "They are written as in the\n# list."),
        (("--shared-bits", "44"), "all addresses that share 44 bits with one"),
    ],
)
def test_a_policy_says_how_its_addresses_are_written(options: tuple[str, ...], told: str) -> None:
    text = initialised(EXAMPLES / "plain.csv", *options).stdout
    assert told in text
    assert ("base_radio means" in text) == bool(options)


# --- ticks or changes ---------------------------------------------------------------------------------

FLOORS = ("5c:52:1e:00:20:10,1,hall,90", "5c:52:1e:00:20:20,2,loft,60")
HEADER = "ap,floor,zone,capacity"


def of(level: str, error: float, mean: float) -> dict[str, Quality]:
    return {level: Quality(error, mean, mean)}


@pytest.mark.parametrize(
    ("floor", "building", "counts"),
    [
        ((4, 9), (10, 15), {"sums": "ticks"}),
        ((4, 3), (20, 8), {"sums": "changes"}),
        ((4, 7), (10, 8), {"floors": "ticks", "building": "changes"}),
        ((4, 3), (10, 18), {"floors": "changes", "building": "ticks"}),
        ((4, 4), (10, 10), {"sums": "ticks"}),
    ],
)
def test_each_level_counts_what_errs_less(
    tmp_path: Path,
    floor: tuple[int, int],
    building: tuple[int, int],
    counts: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Errors by ticks and by changes. Levels that differ become releases of their own."""

    def tried(_policy: Policy, _name: str, _release: CountRelease, _epsilon: Fraction, each: str) -> dict[str, Quality]:
        at = ("ticks", "changes").index(each)
        return of("floor", floor[at], 10) | of("building", building[at], 50)

    monkeypatch.setattr(comparison, "_tried", tried)
    done = CliRunner().invoke(
        tacet, ["policy", "init", "--access-points", str(listed(tmp_path, *FLOORS, header=HEADER))]
    )
    assert done.exit_code == 0, done.output
    made_ones = releases(load_policy(done.stdout))
    assert {name: made_ones[name].count for name in made_ones if name != "rooms"} == counts


DESKS = tuple(f"5c:52:1e:00:0{floor}:{ap:x}0,{floor},floor-{floor},200" for floor in (1, 2) for ap in range(10))


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        pytest.param("desks", {"floors": "ticks", "building": "changes"}, id="an office"),
        pytest.param("classroom", {"sums": "ticks"}, id="a university building, by events"),
    ],
)
def test_the_day_that_is_tried_follows_the_kinds_of_the_zones(
    tmp_path: Path, kind: str, counts: dict[str, str]
) -> None:
    """Where people stay a building pays for changes; where they come and go, and cross floors, it pays for ticks."""
    path = listed(tmp_path, *(f"{row},{kind}" for row in DESKS), header=f"{HEADER},kind")
    done = CliRunner().invoke(tacet, ["policy", "init", "--access-points", str(path)])
    assert done.exit_code == 0, done.output
    made_ones = releases(load_policy(done.stdout))
    assert {name: made_ones[name].count for name in made_ones if name != "rooms"} == counts


@pytest.mark.parametrize("reader", ["facilities", "public"])
def test_two_releases_tell_no_more_than_one_for_both_levels(tmp_path: Path, reader: str) -> None:
    """Each level has the noise that it had, or a little more: variances of ticks, and squared shifts of changes."""
    path = listed(tmp_path, *FLOORS, header=HEADER)
    places = places_of(path, read_inventory(path, {})[0], "building", "floor")

    def parameters(floor: Count, building: Count) -> dict[str, tuple[Fraction, ...]]:
        policy = load_policy(policy_text(Building(places, floor_count=floor, building_count=building)))
        own = (each for each in count_guarantees(policy) if each.reader == reader and each.terms is not None)
        return {each.release: each.terms.parameters for each in own if each.terms is not None}

    ticks, changes = parameters("ticks", "ticks")["sums"], parameters("changes", "changes")["sums"]
    one, other = parameters("ticks", "changes"), parameters("changes", "ticks")
    for variance, apart in zip(ticks, (*one["floors"], *other["building"]), strict=True):
        assert variance <= apart < Fraction(11, 10) * variance
    for shift, apart in zip(changes, (*other["floors"], *one["building"]), strict=True):
        assert shift >= apart > Fraction(9, 10) * shift


def test_the_gap_is_the_one_whose_counts_are_nearest_to_the_devices_present(tmp_path: Path) -> None:
    """Before there is noise. With one visit a day the longer gap, which lets whoever comes back stay counted."""
    path = listed(tmp_path, *FLOORS, header=HEADER)
    policy = made(path, "--count", "changes")
    [(name, site)], sums = policy.site.items(), releases(policy)["sums"]
    assert (sums.count, site.gap, site.residents) == ("changes", 0, "ignore")
    once = policy.model_copy(update={"site": {name: site.model_copy(update={"visits": 1})}})
    assert comparison.preferred(once, name, sums, "changes").gap == 10 * MINUTE


def test_changes_are_refused_where_floors_are_left_out(tmp_path: Path) -> None:
    path = listed(tmp_path, *FLOORS, "5c:52:1e:00:20:30,3,attic,3", header=HEADER)
    done = initialised(path, "--count", "changes")
    assert "--count: changes need every floor to have room for enough people" in str(done.exception)
    plain = CliRunner().invoke(tacet, ["policy", "init", "--access-points", str(path)])
    assert releases(load_policy(plain.stdout))["sums"].count == "ticks"


# --- safe as it stands --------------------------------------------------------------------------------


def releases(policy: Policy) -> dict[str, CountRelease]:
    return {release.name: release for release in policy.release if isinstance(release, CountRelease)}


@pytest.mark.parametrize("example", MAPPED)
def test_everything_is_paid_by_the_day_in_single_epsilons(example: str) -> None:
    columns = [word for text in MAPPED[example] for word in ("--columns", text)]
    policy = made(EXAMPLES / example, *columns)
    assert all(release.by_day for release in policy.release if isinstance(release, CountRelease))
    assert len(releases(policy)) == len(policy.release)
    for audience in policy.audience:
        spent = sum(release.epsilon.get(audience.name, 0) for release in releases(policy).values())
        assert 0 < spent < parse_epsilon("10")


def test_zones_for_fewer_people_than_the_noise_hides_are_not_published() -> None:
    policy = made(EXAMPLES / "plain.csv")
    published = {zone.id for zone in policy.zones_of(releases(policy)["rooms"], "building")}
    assert published == {"reading-room", "cafe", "stacks"}
    assert set(releases(policy)["rooms"].epsilon) == {"facilities"}


def test_no_zone_is_published_where_all_are_small(tmp_path: Path) -> None:
    path = listed(tmp_path, "5c:52:1e:00:20:10,a,3", "5c:52:1e:00:20:20,b,18", header="ap,zone,capacity")
    policy = made(path)
    assert list(releases(policy)) == ["sums"]
    assert releases(policy)["sums"].levels == ("building",)


def test_a_floor_of_few_people_is_in_no_sum_of_floors(tmp_path: Path) -> None:
    path = listed(tmp_path, "5c:52:1e:00:20:10,1,hall,90", "5c:52:1e:00:20:20,2,loft,3", "5c:52:1e:00:20:30,3,bar,50",
                  header="ap,floor,zone,capacity")  # fmt: skip
    sums = releases(made(path))["sums"]
    assert (sums.levels, sums.zones.ids) == (("floor", "building"), ("hall", "bar"))


def published(policy: Policy) -> list[frozenset[str]]:
    """Return the sets of zones of which the policy publishes a count, each as often as it does."""
    found = []
    for release in releases(policy).values():
        for name, site in policy.site.items():
            zones = [zone for zone in site.zones if zone in policy.zones_of(release, name)]
            sums = {"zone": [[zone] for zone in zones], "building": [zones]}
            sums["floor"] = [[zone for zone in zones if zone.floor == floor] for floor in {z.floor for z in zones}]
            found += [frozenset(zone.id for zone in each) for level in release.levels for each in sums[level]]
    return found


TWICE: tuple[tuple[tuple[str, ...], str], ...] = (
    (("1,,90", "2,,80"), "floor"),  # each zone is a floor
    (("1,,90",), "floor"),  # the zone is the building
    (("1,hall,90", "1,bar,80", "2,loft,70"), "floor"),  # one zone is a floor, two are not
    (("1,hall,90", "2,loft,3"), "floor"),  # one floor alone is for enough people
    (("1,hall,90", "1,bar,80"), "access-point"),
)


@pytest.mark.parametrize(("rows", "group"), TWICE)
def test_nothing_is_published_twice_under_two_prices(tmp_path: Path, rows: tuple[str, ...], group: str) -> None:
    path = listed(tmp_path, *(f"5c:52:1e:00:20:{n}0,{row}" for n, row in enumerate(rows, 1)),
                  header="ap,floor,zone,capacity")  # fmt: skip
    policy = made(path, "--group", group)
    assert len(set(published(policy))) == len(published(policy))
    assert frozenset(zone.id for zone in policy.site["building"].zones) in published(policy)


def test_what_is_published_as_a_floor_is_named_in_the_file(tmp_path: Path) -> None:
    path = listed(tmp_path, "5c:52:1e:00:20:10,1,hall,90", "5c:52:1e:00:20:20,1,bar,80", "5c:52:1e:00:20:30,2,loft,70",
                  header="ap,floor,zone,capacity")  # fmt: skip
    text = initialised(path).stdout
    assert releases(made(path))["rooms"].zones.ids == ("hall", "bar")
    assert "because 'sums' publishes it, at its own price:\n#   loft\n" in text


def deviation(policy: Policy) -> float:
    """Return the standard deviation of the noise of single zones, from the policy's own promises."""
    found = [each.terms for each in count_guarantees(policy) if each.release == "rooms" and each.terms is not None]
    return max(math.sqrt(float(parameter)) for terms in found for parameter in terms.parameters)


@pytest.mark.parametrize(
    ("capacity", "group"),
    [(1, "name"), (26, "name"), (27, "name"), (28, "name"), (40, "access-point"), (1, "access-point")],
)
def test_a_zone_that_the_noise_hides_is_left_out_as_the_file_says(tmp_path: Path, capacity: int, group: str) -> None:
    path = listed(
        tmp_path, f"5c:52:1e:00:20:10,1,nook-1,{capacity}", "5c:52:1e:00:20:20,1,hall-1,90",
        "5c:52:1e:00:20:30,2,bar-1,90", "5c:52:1e:00:20:40,2,den-1,90", header="ap,floor,name,capacity",
    )  # fmt: skip
    text = initialised(path, "--group", group).stdout
    policy = load_policy(text, "made")
    nook, hall, *_ = (zone.id for zone in policy.site["building"].zones)
    rooms = {zone.id for zone in policy.zones_of(releases(policy)["rooms"], "building")}
    assert hall in rooms
    assert (nook in rooms) is (capacity >= deviation(policy))
    assert (f"#   {nook}\n" in text) is (capacity < deviation(policy))
    assert f"standard deviation is {deviation(policy):.0f} devices a window" in text
    assert f"zones for fewer than {math.ceil(deviation(policy))} people are left" in text


def test_a_name_that_is_small_at_one_site_is_published_at_none(tmp_path: Path) -> None:
    path = listed(tmp_path, "5c:52:1e:00:20:10,n,hall,90", "5c:52:1e:00:20:20,s,hall,3", "5c:52:1e:00:20:30,s,bar,50",
                  header="ap,site,zone,capacity")  # fmt: skip
    assert releases(made(path))["rooms"].zones.ids == ("bar",)


def test_a_policy_from_a_recording_says_that_it_is_for_a_laboratory(tmp_path: Path) -> None:
    recording = tmp_path / "rows.csv"
    recording.write_text("time,device,access_point,site\n2018-02-01T08:00:00Z,a4:00:00:00:00:01,5C52.1E00.2010,dbh\n")
    done = CliRunner().invoke(tacet, ["policy", "init", "--count", "ticks", "--from-observations", str(recording)])
    assert "LABORATORY" in done.stdout
    policy = load_policy(done.stdout, "made")
    assert policy.site["dbh"].name == "dbh (from a recording)"
    assert policy.access_points() == {"5c:52:1e:00:20:10": ("dbh", "5c521e002010")}
    assert "a4:00" not in done.stdout
    assert "LABORATORY" not in initialised(EXAMPLES / "plain.csv").stdout


def test_the_names_of_a_list_are_written_beside_the_policy_and_readable(tmp_path: Path) -> None:
    out = tmp_path / "library.toml"
    rows = (
        "5c:52:1e:00:20:10,lib-2-reading-ap1,,Campus > Floor 2,,,",
        "5c:52:1e:00:20:20,lib-0-hall-ap1,,Ground floor,,,",
        "5c:52:1e:00:20:30,,,Ground floor,,,",
        "5c:52:1e:00:20:40,,,Ground floor,Café <b> 1,,",
    )
    assert initialised(listed(tmp_path, *rows), "--group", "name", "--out", str(out)).exit_code == 0
    site = read_policy(out).site["building"]
    titles = [(floor, site.floor_title(floor)) for floor in site.floors]
    assert titles == [("Ground-floor", "Ground floor"), ("Floor-2", "Floor 2")]
    assert [zone.title for zone in site.zones] == ["Lib 2 reading", "Lib 0 hall", "5c521e002030", "Café <b> 1"]
    assert "metadata" not in out.read_text()


def test_an_existing_file_is_not_written_over(tmp_path: Path) -> None:
    out = tmp_path / "building.toml"
    assert initialised(EXAMPLES / "plain.csv", "--out", str(out)).output.startswith(
        f"{out}: 4 zone(s) at 1 site(s), 2 "
    )
    before = out.read_text()
    out.rename(tmp_path / "moved.toml")
    names = (tmp_path / "building.names.toml").read_text()
    assert initialised(EXAMPLES / "plain.csv", "--out", str(out)).exit_code != 0
    assert (not out.exists(), (tmp_path / "building.names.toml").read_text()) == (True, names)
    (tmp_path / "moved.toml").rename(out)
    assert initialised(EXAMPLES / "plain.csv", "--out", str(out)).exit_code == 2
    assert out.read_text() == before


# --- what is refused, with line and column ------------------------------------------------------------

AP = "5c:52:1e:00:20:10"
REFUSED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("5c:52:1e:00:20,,,,,,",), "line 2, column 'ap': must be a radio address such as '5c:52:1e:00:20:65', got "),
    (("01:00:5e:00:00:01,,,,,,",), "line 2, column 'ap': must be the address of one radio, neither of a group nor"),
    (
        (f"{AP},,,,,,", "", "5C52.1E00.2010,,,,,,"),
        "line 4, column 'ap': must be listed once, but line 2 lists it too, ",
    ),
    ((f"{AP},hall,,,,,", "5c:52:1e:00:20:20,HALL,,,,,"), "line 3, column 'name': must be listed once, but line 2"),
    ((f"{AP},,,,a,,0",), "line 2, column 'capacity': must be a whole number from 1 to 100,000, got '0'"),
    ((f"{AP},,,,a,,1e3",), "line 2, column 'capacity': must be a whole number from 1 to 100,000, got '1e3'"),
    ((f"{AP},,,,!?,,",), "line 2, column 'zone': must contain a letter a to z or a digit, got '!?'"),
    ((f"{AP},,",), "line 2: must have 7 fields as the first line has, got 3"),
    ((), "line 1: must be followed by at least one access point"),
)


@pytest.mark.parametrize(("rows", "message"), REFUSED)
def test_a_row_that_breaks_a_rule_is_named_by_line_and_column(
    tmp_path: Path, rows: tuple[str, ...], message: str
) -> None:
    assert refusal(tmp_path, *rows).startswith(f"aps.csv: {message}")


def test_every_bad_row_is_named_at_once(tmp_path: Path) -> None:
    report = refusal(tmp_path, "x,,,,,,", f"{AP},,,,,,0", "y,,,,,,")
    assert re.findall(r"line (\d)", report) == ["2", "3", "4"]


def test_a_misspelt_column_is_no_column(tmp_path: Path) -> None:
    assert refusal(tmp_path, f"{AP},1", header="ap,flor").endswith(
        "column 'flor' is none of ap, name, site, floor, zone, kind, capacity, perhaps 'floor' is meant; "
        "--columns says what others mean"
    )


CONTRADICTIONS = (
    ((f"{AP},1,a,hall,9", "5c:52:1e:00:20:20,2,a,hall,9"), "line 3, floor: must equal that of line 2, which is in the"),
    ((f"{AP},1,a,hall,9", "5c:52:1e:00:20:20,1,a,hall,8"), "line 3, capacity: must equal that of line 2, which is in"),
    ((f"{AP},1,a b,hall,9", "5c:52:1e:00:20:20,1,a-b,hall,9"), "line 3, zone: must differ from 'a b' of line 2 in"),
)


@pytest.mark.parametrize(("rows", "message"), CONTRADICTIONS)
def test_rows_of_one_zone_may_not_contradict_each_other(tmp_path: Path, rows: tuple[str, ...], message: str) -> None:
    done = initialised(listed(tmp_path, *rows, header="ap,floor,zone,kind,capacity"))
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)


@pytest.mark.parametrize("text", ["ap", "ap=", "ap=x,ap=y", "radio=x", "name=x"])
def test_columns_that_are_not_field_and_column_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--columns: must "):
        columns_of((text,))


def test_a_column_that_is_declared_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"line 1: must have the column 'BSSID' \(for ap\); it has: ap, zone"):
        read_inventory(listed(tmp_path, f"{AP},a", header="ap,zone"), {"ap": "BSSID"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--controllers", "wlc-1"), "--controllers: must be addresses or blocks"),
        (("--timezone", "Berlin"), "--timezone: must be a name such as Europe/Berlin"),
        (("--site", "a b"), "--site: must be a name"),
    ],
)
def test_an_option_that_breaks_a_rule_is_refused(options: tuple[str, ...], message: str) -> None:
    assert str(initialised(EXAMPLES / "plain.csv", *options).exception).startswith(message)


# --- spellings ----------------------------------------------------------------------------------------

SPELLINGS = ("5c:52:1e:00:20:65", "5C-52-1E-00-20-65", "5c52.1e00.2065", "5c521e002065", "0x5C521E002065",
             "5c521e-002065", " 5c:52:1e:0:20:65 ", "5c 52 1e 00 20 65", "5c.52.1e.00.20.65")  # fmt: skip


@pytest.mark.parametrize("text", SPELLINGS)
def test_an_address_may_be_spelt_in_many_ways(text: str) -> None:
    assert address_of(text) == bytes.fromhex("5c521e002065")


@pytest.mark.parametrize("text", ["", "5c:52:1e:00:20", "5c:52-1e:00:20:65", "5g:52:1e:00:20:65", "５c521e002065"])
def test_what_is_no_address_is_none(text: str) -> None:
    assert address_of(text) is None


NAMES: tuple[tuple[Any, str, str], ...] = (
    (name_of, "Hörsaal 1 (Süd)", "Hoersaal-1-Sued"),
    (name_of, "..café__", "cafe"),
    (name_of, "会議室", ""),
    (name_of, "Aula " * 20, "Aula-" * 12 + "Aul"),
    (name_of, "a" * 62 + " b", "a" * 62),
    (kind_of, "Lecture Hall", "lecture-hall"),
    (last_part, "Campus > Library > Floor 2", "Floor 2"),
    (last_part, "Global/Library/2", "2"),
    (stem, "lib-2-reading-ap03", "lib-2-reading"),
    (stem, "lobby", "lobby"),
)


@pytest.mark.parametrize(("function", "text", "expected"), NAMES)
def test_what_people_call_a_place_becomes_a_name(function: Any, text: str, expected: str) -> None:
    assert function(text) == expected
