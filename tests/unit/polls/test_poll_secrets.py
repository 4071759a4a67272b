"""Credentials of polled sources: from a private file, complete, and in no error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from connectors.sources.polls.config import ReloadingPolls, polled_sources
from connectors.sources.polls.rest_tables import RestAccess
from connectors.sources.snmp.usm.users import Users
from stream.errors import KeyFileError, UsageError
from stream.release.validation import Policy, load_policy
from tests.support.small_building import SITE, SOURCES, policy_text
from tests.unit.polls.test_poll_policy import PROBED, poll
from tests.unit.snmp.v3_controller import USERS

AGENT = f'[[agent]]\nsource = "{SOURCES[0]}"\ncommunity = "canary community"\n'
SYSTEM = f"""[[system]]
source = "{SOURCES[0]}"
url = "https://127.0.0.1:8443"
sites = ["default"]
token = "canary token"
"""


def secrets(folder: Path, text: str) -> ReloadingPolls:
    file = folder / "polls.toml"
    file.write_text(text)
    file.chmod(0o600)
    return ReloadingPolls(file)


def polled(*lines: str) -> Policy:
    return load_policy(policy_text() + PROBED + poll(*lines))


def test_a_poll_finds_its_credentials(tmp_path: Path) -> None:
    (agent,) = polled_sources(polled("by = 'aruba'"), secrets(tmp_path, AGENT), None)
    assert (agent.site, agent.source, agent.check) == (SITE, SOURCES[0], None)
    (system,) = polled_sources(polled("by = 'unifi'"), secrets(tmp_path, SYSTEM), None)
    assert system.check is None, "its coverage follows from its probe"
    assert len(polled_sources(polled("by = 'aruba'", "user = 'tacet'"), None, USERS)) == 1


@pytest.mark.parametrize(
    ("lines", "text", "users", "rule"),
    [
        (("by = 'aruba'",), None, None, r"site.dbh.poll: without user needs an \[\[agent\]\]"),
        (("by = 'aruba'",), SYSTEM, None, r"needs an \[\[agent\]\]"),
        (("by = 'aruba'", "user = 'nobody'"), AGENT, USERS, "user must be one of the file"),
        (("by = 'unifi'",), AGENT, None, r"needs a \[\[system\]\]"),
        (("by = 'omada'",), SYSTEM, None, "by = 'omada' needs controller"),
    ],
)
def test_a_poll_without_its_credentials_is_refused(
    lines: tuple[str, ...], text: str | None, users: Users | None, rule: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=rule):
        polled_sources(polled(*lines), None if text is None else secrets(tmp_path, text), users)


def test_a_policy_without_a_poll_is_refused_and_so_is_a_source_that_two_sites_poll(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must have a"):
        polled_sources(load_policy(policy_text()), None, None)
    twice = "".join(each.replace(f"site.{SITE}.", f"site.{name}.") for name in (SITE, "annex")
                    for each in (PROBED, poll("by = 'aruba'")))  # fmt: skip
    policy = load_policy(policy_text(sites=(SITE, "annex")) + twice)
    with pytest.raises(UsageError, match=r"must have one \[\[site\.NAME\.poll\]\] only"):
        polled_sources(policy, secrets(tmp_path, AGENT), None)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must have at least one"), (AGENT * 2, "each with a source of its own"),
        (AGENT + SYSTEM, "each with a source of its own"), (SYSTEM.replace("https", "http"), "must be an address"),
        (SYSTEM.replace("8443", "8443/proxy"), "without a path"), (SYSTEM + "fingerprint = 'ab'", "SHA-256"),
        (SYSTEM.replace("8443", "84430"), "url: port out of range"),
        (SYSTEM.replace("canary token", "canáry token"), "token: must be printable ASCII"),
        (SYSTEM.replace("canary token", "canary\\ntoken"), "token: must be printable ASCII"),
        (SYSTEM.replace('"default"', ""), "sites"), (AGENT + "name = 'a'", "name"),
        (AGENT.replace("canary community", ""), "community"),
    ],
)  # fmt: skip
def test_a_file_that_breaks_a_rule_is_refused_without_its_secrets(text: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=rule) as reported:
        secrets(tmp_path, text)
    assert "canary" not in str(reported.value)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_refused_at_the_start(content: str | None, tmp_path: Path) -> None:
    authorities = tmp_path / "authorities.pem"
    if content is not None:
        authorities.write_text(content)
    file = secrets(tmp_path, f'{SYSTEM}ca_file = "{authorities}"\n')
    with pytest.raises(UsageError, match=r"site\.dbh\.poll: ca_file must contain certificates in PEM"):
        polled_sources(polled("by = 'unifi'"), file, None)


def test_a_community_may_be_one_character(tmp_path: Path) -> None:
    agent = secrets(tmp_path, AGENT.replace("canary community", "c")).agent(SOURCES[0])
    assert agent is not None
    assert agent.community.get_secret_value() == "c"


def test_a_change_of_the_file_takes_effect_with_the_next_poll(tmp_path: Path) -> None:
    both = AGENT + SYSTEM.replace(SOURCES[0], SOURCES[1])
    file = secrets(tmp_path, both)

    def change(word: str, at: int) -> None:
        (tmp_path / "polls.toml").write_text(both.replace("canary", word))
        os.utime(tmp_path / "polls.toml", (at, at))

    change("another", 1)
    agent = file.agent(SOURCES[0])
    assert agent is not None
    assert agent.community.get_secret_value() == "another community"
    change("a third", 2)
    system = file.system(SOURCES[1])
    assert system is not None
    assert system.access.token == "a third token"


def test_nothing_shows_a_credential(tmp_path: Path) -> None:
    system = secrets(tmp_path, SYSTEM).system(SOURCES[0])
    assert system is not None
    assert "canary" not in repr(system) + repr(system.access) + str(system)
    assert repr(RestAccess(("a",), "canary")) == "RestAccess()"
