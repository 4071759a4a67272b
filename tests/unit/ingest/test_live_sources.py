"""Live inputs: what listens to each, and the files of secrets of their senders."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.sources.ingest_socket.listener import SocketListener
from connectors.sources.live import (
    Live,
    LiveSource,
    RadiusSource,
    SnmptrapdLogSource,
    SnmptrapdPipeSource,
    SocketSource,
    TelegrafSource,
    UdpSource,
    live_pairs,
    secrets_of,
)
from connectors.sources.radius.clients import Client, ClientFile
from connectors.sources.radius.listener import AccountingListener
from connectors.sources.snmp.collectors import SnmptrapdLogListener, SnmptrapdPipeListener, TelegrafListener
from connectors.sources.snmp.communities import CommunityFile
from connectors.sources.snmp.listener import TrapListener
from connectors.sources.snmp.usm.receiver import V3Files
from connectors.sources.snmp.usm.users import UserFile
from stream.errors import UsageError
from tests.support.small_building import SITE, SOURCES, building
from tests.unit.snmp.v3_controller import USERS

HERE, FILE = ("127.0.0.1", 0), Path("unused")
CLIENT = Client(address="127.0.0.1", secrets=("a-secret-of-sixteen-octets",))
USER = '[[user]]\nname = "tacet"\nauth_password = "auth-canary-1"\nprivacy_password = "priv-canary-2"\n'


@pytest.mark.parametrize(
    ("source", "listener"),
    [
        (UdpSource(HERE, (b"public",)), TrapListener),
        (RadiusSource(HERE, (CLIENT,)), AccountingListener),
        (SocketSource(FILE, "--hooks"), SocketListener),
        (SnmptrapdPipeSource(FILE), SnmptrapdPipeListener),
        (SnmptrapdLogSource(FILE, FILE), SnmptrapdLogListener),
        (TelegrafSource("127.0.0.1:9092", "traps", "tacet", None), TelegrafListener),
    ],
)
def test_each_input_has_its_listener(source: LiveSource, listener: type) -> None:
    assert type(source.listener(SOURCES)) is listener


def test_traps_need_a_community_unless_users_of_snmp_v3_may_send() -> None:
    with pytest.raises(UsageError, match=r"^communities: must contain at least one"):
        UdpSource(HERE, ()).listener(SOURCES)
    assert UdpSource(HERE, (), V3Files(USERS, FILE)).listener(SOURCES).harmless


def test_every_file_that_identifies_senders_is_read_again_when_it_changes(tmp_path: Path) -> None:
    files = {
        "communities": "public\n", "telegraf": "private\n", "users": USER,
        "clients": '[[client]]\naddress = "127.0.0.1"\nsecrets = ["a-secret-of-sixteen-octets"]\n',
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    communities, forwarded = CommunityFile(tmp_path / "communities"), CommunityFile(tmp_path / "telegraf")
    users, clients = UserFile(tmp_path / "users"), ClientFile(tmp_path / "clients")
    telegraf = TelegrafSource("127.0.0.1:9092", "traps", "tacet", forwarded)
    live: Live = [UdpSource(HERE, communities, V3Files(users, FILE)), RadiusSource(HERE, clients), telegraf]
    assert secrets_of(live) == [communities, users.file, clients, forwarded]
    given: Live = [UdpSource(HERE, (b"public",), V3Files(USERS, FILE)), RadiusSource(HERE, (CLIENT,))]
    without: Live = [TelegrafSource("127.0.0.1:9092", "traps", "tacet", None), SnmptrapdPipeSource(FILE)]
    assert secrets_of([*given, *without]) == []


def test_each_site_is_heard_by_each_of_its_sources() -> None:
    pairs = live_pairs(building(sites=(SITE, "annex")))
    assert pairs == tuple((site, source) for site in (SITE, "annex") for source in SOURCES)
