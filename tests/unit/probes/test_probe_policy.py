"""Probes in the policy: what may be declared, and that no guarantee hangs on it."""

import pytest

from stream.errors import PolicyError
from stream.policy.document import PolicyDocument
from stream.release.validation import load_policy
from tests.support.small_building import SITE, SOURCES, policy_text

DIGEST = "ab" * 32


def probe(*lines: str, source: str = SOURCES[0]) -> str:
    body = "\n".join(lines)
    return f"\n[[site.{SITE}.probe]]\nsource = '{source}'\n{body}\n"


def test_probes_change_neither_version_nor_document() -> None:
    without, with_one = load_policy(policy_text()), load_policy(policy_text() + probe("by = 'icmp'"))
    assert with_one.version == without.version
    assert with_one.document() == without.document()
    assert PolicyDocument.from_document(with_one.document()).site[SITE].probe == ()
    assert [each.by for each in with_one.site[SITE].probe] == ["icmp"]


@pytest.mark.parametrize(
    "text",
    [
        probe("by = 'snmp'"),
        probe("by = 'snmp'", "user = 'tacet'", "port = 1161"),
        probe("by = 'https'", f"fingerprint = '{':'.join(['AB'] * 32)}'"),
        probe("by = 'snmp'", "wrong_community = true"),
        probe("by = 'https'", "name = 'wlc.example.org'", "port = 8443"),
        probe("by = 'icmp'") + probe("by = 'snmp'", source=SOURCES[1]),
    ],
)
def test_valid_probes_are_accepted(text: str) -> None:
    found = load_policy(policy_text() + text).site[SITE].probe
    assert {each.fingerprint for each in found} <= {None, DIGEST}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (probe("by = 'icmp'") + probe("by = 'snmp'"), "a source must have one probe"),
        (probe("by = 'icmp'", source="10.9.9.9"), "must be one of the site's sources"),
        (probe("by = 'telnet'"), "by"),
        (probe(""), "must be given"),
        (probe("by = 'https'"), "must have either name or fingerprint"),
        (probe("by = 'https'", "name = 'a'", f"fingerprint = '{DIGEST}'"), "must have either name or fingerprint"),
        (probe("by = 'https'", "fingerprint = 'ab'"), "must be the SHA-256 of a certificate"),
        (probe("by = 'https'", "name = 'a'", "user = 'b'"), "user must not be used with by = 'https'"),
        (probe("by = 'icmp'", "port = 7"), "port must not be used with by = 'icmp'"),
        (probe("by = 'icmp'", "wrong_community = true"), "wrong_community must not be used with by = 'icmp'"),
        (probe("by = 'icmp'", "name = 'a'"), "name must not be used with by = 'icmp'"),
        (probe("by = 'snmp'", "community = 'a'"), "community"),
        (probe("by = 'snmp'", "port = 0"), "must be above 0, got 0"),
    ],
)
def test_what_is_refused(text: str, rule: str) -> None:
    with pytest.raises(PolicyError, match="probe") as reported:
        load_policy(policy_text() + text)
    assert rule in str(reported.value)


def test_a_block_of_addresses_cannot_be_asked() -> None:
    text = policy_text().replace(f'"{SOURCES[0]}"', '"10.2.0.0/24"')
    with pytest.raises(PolicyError, match="must be one address"):
        load_policy(text + probe("by = 'icmp'", source="10.2.0.0/24"))


def test_windows_must_wait_for_the_answer() -> None:
    text = policy_text().replace('lateness = "30s"', 'lateness = "9s"')
    load_policy(text)
    with pytest.raises(PolicyError, match="lateness must be at least 10s where sources are probed"):
        load_policy(text + probe("by = 'icmp'"))
