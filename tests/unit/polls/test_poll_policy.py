"""Polls in the policy: what may be declared, and that no guarantee hangs on it."""

import pytest

from stream.errors import PolicyError
from stream.policy.document import PolicyDocument
from stream.records import MINUTE
from stream.release.validation import load_policy
from tests.support.small_building import SITE, SOURCES, policy_text
from tests.unit.probes.test_probe_policy import probe

PROBED = probe("by = 'snmp'")


def poll(*lines: str, source: str = SOURCES[0]) -> str:
    body = "\n".join(lines)
    return f"\n[[site.{SITE}.poll]]\nsource = '{source}'\n{body}\n"


def test_polls_change_neither_version_nor_document() -> None:
    without, with_one = load_policy(policy_text()), load_policy(policy_text() + PROBED + poll("by = 'cisco-lwapp'"))
    assert with_one.version == without.version
    assert with_one.document() == without.document()
    assert PolicyDocument.from_document(with_one.document()).site[SITE].poll == ()
    assert [each.interval for each in with_one.site[SITE].poll] == [5 * MINUTE]


@pytest.mark.parametrize("interval", ["2min", "5min", "10min"])
def test_valid_polls_are_accepted(interval: str) -> None:
    lines = ("by = 'aruba'", "user = 'tacet'", "port = 1161", f"interval = '{interval}'")
    assert len(load_policy(policy_text() + PROBED + poll(*lines)).site[SITE].poll) == 1


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (PROBED + poll("by = 'aruba'") * 2, "a source must have one poll"),
        (PROBED + poll("by = 'aruba'", source="10.9.9.9"), "must be one of the site's sources"),
        (PROBED + poll("by = 'aruba'", source=SOURCES[1]), "must have a [[site.NAME.probe]]"),
        (poll("by = 'aruba'"), "must have a [[site.NAME.probe]]"),
        (PROBED + poll("by = 'smartzone-mib'"), "by"),
        (PROBED + poll("by = 'aruba'", "interval = '1min'"), "from 2min to 30min"),
        (PROBED + poll("by = 'aruba'", "interval = '31min'"), "from 2min to 30min"),
        (PROBED + poll("by = 'aruba'", "interval = '150s'"), "whole minutes"),
        (PROBED + poll("by = 'aruba'", "interval = '11min'"), "must be at most validity, 10min"),
        (PROBED + poll("by = 'aruba'", "port = 0"), "must be above 0"),
        (PROBED + poll("by = 'aruba'", "community = 'a'"), "community"),
        (PROBED + poll("by = 'meraki'"), "must be a cloud system, 'cloud:NAME', with by = 'meraki'"),
        (PROBED + poll("by = 'unifi'", "port = 443"), "port must not be used with by = 'unifi'"),
        (PROBED + poll("by = 'unifi'", "user = 'a'"), "user must not be used with by = 'unifi'"),
        (poll("by = 'smartzone'"), "must have a [[site.NAME.probe]]"),
    ],
)
def test_what_is_refused(text: str, rule: str) -> None:
    with pytest.raises(PolicyError, match="poll") as reported:
        load_policy(policy_text() + text)
    assert rule in str(reported.value)


def test_a_cloud_system_has_no_probe_and_is_polled_by_its_own_interface_alone() -> None:
    text = policy_text().replace(f'"{SOURCES[0]}"', '"cloud:mist"')
    assert len(load_policy(text + poll("by = 'mist'", source="cloud:mist")).site[SITE].poll) == 1
    with pytest.raises(PolicyError, match="must be one address with by = 'unifi'"):
        load_policy(text + poll("by = 'unifi'", source="cloud:mist"))
