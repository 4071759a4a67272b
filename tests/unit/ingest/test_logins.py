"""Which text of a message is a login, in which form logins are compared, and what an ingest makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.keys.opt_outs import OptOutFile, add
from connectors.sources.ingest.ingest import OPTED_OUT, Ingest
from connectors.sources.ingest.logins import LoginRules, parse_user_name, written_logins
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.ingest.state import IngestState
from stream.encoding import decode_message, encode_message
from stream.policy.sites import Site
from stream.records import HOUR, MINUTE, SECOND, Columns, ObservationBatch
from stream.release.validation import Policy, load_policy
from tests.support.day_policies import day_release
from tests.support.small_building import SITE, SOURCES, access_point, policy_text

NOON = 20_000 * 24 * HOUR + 20 * HOUR
LAPTOP, PHONE = bytes.fromhex("3c0000000001"), bytes.fromhex("3c0000000002")


def rules(**keys: Any) -> LoginRules:
    site = load_policy(text()).site[SITE]
    return LoginRules(Site.model_construct(**(dict(site) | keys)))


def text(keys: str = "", releases: str = day_release()) -> str:
    site = f'day_starts = "04:00"\ncontribution = "8h"\nidentity = "login"\n{keys}'
    return policy_text(releases, site=site)


# ---- forms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["anne", "Anne", "ANNE@example.org", "anne@EXAMPLE.ORG", r"example\anne", r"EXAMPLE\Anne", " anne\0",
     "example.org!anne@proxy.net", "ａnne@example.org."],
)  # fmt: skip
def test_a_name_with_and_without_a_home_realm_is_one_login(name: str) -> None:
    known = rules(home_realms=("example.org", "EXAMPLE"))
    assert known.login(name.encode(), b"") == b"anne"


def test_the_realm_of_others_is_part_of_their_login() -> None:
    known = rules(home_realms=("example.org",))
    assert known.login(b"anne@guest.net", b"") == b"anne@guest.net"
    assert known.login(rb"GUEST\anne", b"") == b"anne@guest"
    assert known.login(b"anne@guest.net@example.org", b"") == b"anne@guest.net@example.org"
    assert rules().login(b"anne@example.org", b"") == b"anne@example.org"


@pytest.mark.parametrize(
    "name",
    ["", "@example.org", "example.org", "anonymous", "Anonymous@example.org", "anon", "anon@x", "\0", "anonymous@x@y",
     "host/pc.example.org",
     r"EXAMPLE\host/pc", r"EXAMPLE\PC1$", "pc1$@example.org", "3c:22:fb:00:00:01", "3c22fb000001",
     "0232010000000000@wlan.mnc001.mcc232.3gppnetwork.org", "1232010000000000@nai.epc.mnc001.mcc232.3gppnetwork.org",
     "2pseudonym@wlan.mnc001.mcc232.3gppnetwork.org", "6232010000000000", "123201000000000", "a\tb"],
)  # fmt: skip
def test_what_names_no_person_is_no_login(name: str) -> None:
    assert rules(home_realms=("example.org", "EXAMPLE")).login(name.encode(), b"") is None


def test_octets_that_are_no_text_and_too_long_ones_are_no_login() -> None:
    assert parse_user_name(b"\xff\xfe") is None
    assert parse_user_name(b"a" * 254) is None


def test_a_shared_login_is_none_in_every_form() -> None:
    known = rules(home_realms=("example.org",), shared_logins=("Lab@example.org",))
    assert known.login(b"lab", b"") is None
    assert known.login(b"LAB@EXAMPLE.ORG", b"") is None
    assert known.login(b"lab2", b"") == b"lab2"


def test_a_chargeable_user_identity_is_opaque_and_a_name_beside_it_is_not_read() -> None:
    known = rules(login_attribute="chargeable_user_identity", shared_logins=("Guests",))
    assert known.login(b"anne", b"aB\xff\x01") == b"aB\xff\x01"
    assert known.login(b"anne", b"Ab") != known.login(b"anne", b"ab")
    for none in (b"", b"\0", b"anonymous", b"Guests"):
        assert known.login(b"anne", none) is None


def test_a_user_name_shows_nothing() -> None:
    assert repr(parse_user_name(b"anne@example.org")) == "UserName()"


# ---- rows --------------------------------------------------------------------------------------------------


def seen(device: bytes = LAPTOP, login: bytes = b"anne", zone: str = "a", kind: Kind = Kind.ASSOCIATE) -> Sighting:
    return Sighting(kind, device, bytes.fromhex(access_point(zone).replace(":", "")), user_name=login, session=b"1")


def sent(policy: Policy, *sightings: Sighting) -> ObservationBatch:
    core = Ingest.of_policy(policy, bytes(32))
    state = core.initial(NOON)
    for number, sighting in enumerate(sightings):
        core.observe(state, NOON + number * 10 * SECOND, SOURCES[0], SOURCES[0], sighting)
    [batch] = [each for each in core.drain(state) if isinstance(each, ObservationBatch)]
    return batch


def columns(batch: ObservationBatch) -> Columns:
    assert isinstance(batch.rows, Columns)
    return batch.rows


def test_a_row_bears_the_pseudonym_of_its_login_which_is_none_of_an_address() -> None:
    batch = sent(load_policy(text()), seen(), seen(PHONE, b"ANNE"), seen(login=b"bert"), seen(login=b""))
    logins = columns(batch).logins
    assert logins is not None
    assert logins[0] == logins[1] != logins[2]
    assert logins[3] is None
    assert {len(each) for each in logins if each} == {16}
    assert not {each for each in logins if each} & set(columns(batch).devices)


def test_a_login_has_another_pseudonym_at_another_site_and_under_another_key_domain() -> None:
    core = Ingest.of_policy(load_policy(text()), bytes(32))
    names = core._sites[SITE].logins
    assert names is not None
    epoch = names.names.epoch(NOON)
    assert names.names.name(LAPTOP, epoch) != core._sites[SITE].names.name(LAPTOP, epoch)


def test_a_batch_of_logins_is_read_as_it_was_written_and_says_by_which_rules() -> None:
    policy = load_policy(text())
    batch = sent(policy, seen(), seen(PHONE, b""))
    again, problems = decode_message(encode_message(batch))
    assert (again, problems) == (batch, [])
    assert batch.identity == policy.site[SITE].login_terms
    assert b"anne" not in encode_message(batch).lower()


def test_a_site_of_devices_reads_no_login_and_sends_the_bytes_that_it_always_sent() -> None:
    policy = load_policy(text().replace('identity = "login"\n', ""))
    with_login, without = sent(policy, seen()), sent(policy, seen(login=b""))
    assert encode_message(with_login) == encode_message(without)
    assert with_login.identity is None


def test_no_message_with_a_login_is_a_repetition() -> None:
    policy = load_policy(text('presence = "sessions"\n').replace('validity = "10min"\n', ""))
    core = Ingest.of_policy(policy, bytes(32))
    state = core.initial(NOON)
    for login in (b"anne", b"bert", b"", b"anne", b""):
        core.observe(state, NOON + SECOND, SOURCES[0], SOURCES[0], seen(login=login))
    late = seen(login=b"bert")._replace(age=SECOND)
    core.observe(state, NOON + 3 * SECOND, SOURCES[0], SOURCES[0], seen(zone="b"))
    core.observe(
        state, NOON + 3 * SECOND, SOURCES[0], SOURCES[0], late._replace(access_point=seen(zone="c").access_point)
    )
    [batch] = [each for each in core.drain(state) if isinstance(each, ObservationBatch)]
    assert [row.access_point for row in batch.rows] == [access_point(zone) for zone in "aaaaabc"]


# ---- opt-outs ----------------------------------------------------------------------------------------------

KEY = bytes(range(32))


def left_out(tmp_path: Any, written: str, *sightings: Sighting, keys: str = "") -> list[bool]:
    """Return which of these sightings are left out by a list with one login."""
    path = tmp_path / "opt-outs"
    add(path, KEY, [], 0, written_logins(written))
    core = Ingest.of_policy(load_policy(text(f'opt_out = "list"\n{keys}')), bytes(32), opt_outs=OptOutFile(path, KEY))
    state = core.initial(NOON)
    return [core.screen(state, NOON, SOURCES[0], each) == OPTED_OUT for each in sightings]


@pytest.mark.parametrize("written", ["anne", "Anne@Example.org", r"EXAMPLE\anne"])
def test_an_opt_out_is_found_however_it_was_written(tmp_path: Any, written: str) -> None:
    keys = 'home_realms = ["example.org", "EXAMPLE"]\n'
    found = left_out(tmp_path, written, seen(), seen(login=rb"EXAMPLE\ANNE"), seen(login=b"bert"), keys=keys)
    assert found == [True, True, False]
    assert left_out(tmp_path, "anne@guest.net@example.org", seen(login=b"anne@guest.net@example.org"), keys=keys) == [
        True
    ]


def test_a_logins_opt_out_names_its_devices_until_they_use_another_login(tmp_path: Any) -> None:
    bare = seen(login=b"")
    words = (
        bare,
        seen(),
        bare,
        seen(PHONE, b""),
        seen(login=b"bert", kind=Kind.LEAVE),
        bare,
        seen(login=b"bert"),
        bare,
    )
    assert left_out(tmp_path, "anne", *words) == [False, True, True, False, False, True, False, False]


def test_a_login_that_opted_out_is_left_out_at_unknown_access_points_too(tmp_path: Any) -> None:
    elsewhere = seen()._replace(access_point=bytes.fromhex("5c521e000009"))
    assert left_out(tmp_path, "anne", elsewhere, elsewhere._replace(user_name=b"bert")) == [True, False]


def test_devices_of_a_login_that_opted_out_are_forgotten_with_their_day(tmp_path: Any) -> None:
    path = tmp_path / "opt-outs"
    add(path, KEY, [], 0, [b"anne"])
    core = Ingest.of_policy(load_policy(text('opt_out = "list"\n')), bytes(32), opt_outs=OptOutFile(path, KEY))
    state: IngestState = core.initial(NOON)
    assert core.screen(state, NOON, SOURCES[0], seen()) == OPTED_OUT
    assert core.screen(state, NOON + 24 * HOUR, SOURCES[0], seen(login=b"")) is None
    core.poll(state, NOON + 4 * 24 * HOUR + MINUTE)
    assert not state.left_out


# ---- policies ----------------------------------------------------------------------------------------------

PLAIN = '\n[[release]]\nname = "plain"\nquery = "count"\nmechanism = "laplace"\nepsilon = { public = "1" }\n'


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (text().replace('day_starts = "04:00"\ncontribution = "8h"\n', ""), "needs day_starts"),
        (text(releases=day_release() + PLAIN), "identity = 'login' must be used with unit = 'device_day'"),
        (text().replace('identity = "login"', 'others = "count"'), "others must be given with identity = 'login' only"),
        (text('login_attribute = "chargeable_user_identity"\nhome_realms = ["x"]\n'), "has no realm"),
        (text('shared_logins = [" lab"]\n'), "printable characters"),
    ],
)
def test_what_has_no_proof_or_no_use_is_refused(made: str, rule: str) -> None:
    with pytest.raises(Exception, match=rule):
        load_policy(made)


def test_every_rule_of_logins_is_part_of_the_terms_of_a_day() -> None:
    found = [
        load_policy(text(keys)).site[SITE]
        for keys in ("", 'others = "count"\n', 'shared_logins = ["lab"]\n', 'home_realms = ["x"]\n',
                     'login_attribute = "chargeable_user_identity"\n')
    ]  # fmt: skip
    assert len({site.login_terms for site in found}) == len(found)
    assert all(site.day_terms[-1] == site.login_terms for site in found)
