"""User names of polled clients: read where a site counts logins by them, and by nobody else."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.ingest_socket.frames import Batch, TimedSighting, decode, encode_batch
from connectors.sources.polls import snmp_walk
from connectors.sources.polls.client_tables import AssociatedClient
from connectors.sources.polls.config import PolledSource, polled_sources
from connectors.sources.polls.departures import Departures
from connectors.sources.polls.snmp_walk import PollError
from connectors.sources.snmp.ber import encode_oid
from stream.records import Columns, ObservationBatch
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time
from tests.support.day_policies import day_release
from tests.support.small_building import SOURCES, access_point, policy_text
from tests.unit.polls.test_poll_policy import PROBED, poll
from tests.unit.polls.test_poll_secrets import secrets

LOGINS = 'day_starts = "04:00"\ncontribution = "8h"\nidentity = "login"\n'
BY_CUI = LOGINS + 'login_attribute = "chargeable_user_identity"\n'
DEVICES = 'day_starts = "04:00"\ncontribution = "8h"\n'
USER_NAMES = encode_oid("1.3.6.1.4.1.9.9.599.1.3.1.1.27")[1:]
NOON = parse_time("2026-03-02T20:00:00Z")
LAPTOP = bytes.fromhex("3c0000000001")
RADIO = bytes.fromhex(access_point("a").replace(":", ""))


def policy(site: str, source: str, *lines: str) -> Policy:
    text = policy_text(day_release(), site=site).replace(f'"{SOURCES[0]}"', f'"{source}"')
    return load_policy(text + PROBED.replace(SOURCES[0], source) + poll("by = 'cisco-lwapp'", *lines, source=source))


def polled(site: str, folder: Path, *lines: str, source: str = "127.0.0.1") -> PolledSource:
    file = secrets(folder, f'[[agent]]\nsource = "{source}"\ncommunity = "a community"\n')
    [found] = polled_sources(policy(site, source, *lines), file, None)
    return found


@pytest.mark.parametrize(("site", "is_asked"), [(LOGINS, True), (BY_CUI, False), (DEVICES, False)])
async def test_an_agent_is_asked_for_user_names_only_where_they_are_logins(
    site: str, is_asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snmp_walk, "WAIT", 0.05)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
        agent.bind(("127.0.0.1", 0))
        agent.setblocking(False)
        reader = polled(site, tmp_path, f"port = {agent.getsockname()[1]}").reader
        with pytest.raises(PollError):
            await reader.read()
        asked = await asyncio.get_running_loop().sock_recv(agent, 4096)
    assert encode_oid("1.3.6.1.4.1.9.9.599.1.3.1.1.8")[1:] in asked, "the access point's column"
    assert (USER_NAMES in asked) == is_asked


def handed_over(source: PolledSource, *rows: AssociatedClient) -> list[TimedSighting]:
    """Pass rows through the socket's protocol, as the service does."""
    passed_on, _ = Departures(source.login_of).follow(rows, NOON)
    batch = decode(encode_batch(Batch(1, source.source, tuple(passed_on))))
    assert isinstance(batch, Batch)
    return list(batch.rows)


def test_a_polled_login_has_the_pseudonym_that_it_has_by_radius(tmp_path: Path) -> None:
    source = polled(LOGINS, tmp_path)
    core = Ingest.of_policy(policy(LOGINS, "127.0.0.1"), bytes(32))
    state = core.initial(NOON)
    core.observe(state, NOON, "127.0.0.1", "127.0.0.1", Sighting(Kind.RUN, LAPTOP, RADIO, user_name=b"ANNE"))
    phone = bytes.fromhex("3c0000000002")
    for row in handed_over(source, AssociatedClient(phone, RADIO, user_name=b"anne")):
        core.observe(state, NOON, "127.0.0.1", "127.0.0.1", row.sighting)
    [batch] = [each for each in core.drain(state) if isinstance(each, ObservationBatch)]
    assert isinstance(batch.rows, Columns)
    assert batch.rows.logins is not None
    assert batch.rows.logins[0] == batch.rows.logins[1] is not None


@pytest.mark.parametrize(
    ("site", "name"),
    [(LOGINS, b"anonymous"), (LOGINS, b"host/pc1"), (LOGINS, b"a" * 254), (LOGINS, b"\xff"), (BY_CUI, b"anne"),
     (DEVICES, b"anne")],
)  # fmt: skip
def test_a_text_that_is_no_login_of_the_site_stays_in_the_process_that_polls(
    site: str, name: bytes, tmp_path: Path
) -> None:
    rows = handed_over(polled(site, tmp_path), AssociatedClient(LAPTOP, RADIO, user_name=name))
    assert [row.sighting.user_name for row in rows] == [b""]
