"""Who may send a trap: by community, over SNMPv3, or over SNMPv3 only."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.authentication import AuthenticatedTrap, TrapAuthenticator
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.drop_reasons import BAD_COMMUNITY, UNKNOWN_USER, V3_REQUIRED
from connectors.sources.snmp.sender import Association, encode_associate
from connectors.sources.snmp.traps import respond
from connectors.sources.snmp.usm.engines import Engines
from connectors.sources.snmp.usm.receiver import V3, EngineFile
from connectors.sources.snmp.usm.users import Users
from connectors.sources.snmp.usm.verifier import RejectedMessage
from tests.unit.snmp.v3_controller import (
    CLIENT,
    ENGINE,
    HOST,
    NOON,
    RADIO,
    STRANGER,
    USERS,
    Controller,
    gate,
    informing,
    source,
    user,
)


class Storage:
    """Counts how often the replay protection is stored."""

    def __init__(self) -> None:
        self.stored = 0

    def keep(self, engines: Engines) -> None:
        self.stored += len(engines.fresh)
        engines.fresh.clear()


def authenticator(
    *communities: bytes, users: Users | None = USERS, storage: Storage | None = None
) -> TrapAuthenticator:
    senders = CommunityAuth(AllowList([HOST, STRANGER]), communities, or_v3=users is not None)
    return TrapAuthenticator(senders, None if users is None else V3(gate(users), storage or Storage()))


def community_trap(community: bytes = b"public", *, inform: bool = False) -> bytes:
    return encode_associate(Association(CLIENT, RADIO), community=community, uptime=7, request_id=1, inform=inform)


def reason(found: AuthenticatedTrap | RejectedMessage) -> str:
    assert isinstance(found, RejectedMessage)
    return found.reason


def accepted(made: TrapAuthenticator, datagram: bytes, host: str = HOST) -> AuthenticatedTrap:
    found = made.read(datagram, host, NOON)
    assert isinstance(found, AuthenticatedTrap), found
    return found


def test_without_users_a_trap_needs_a_known_community() -> None:
    made = authenticator(b"public", users=None)
    assert isinstance(made.read(community_trap(), HOST, NOON), AuthenticatedTrap)
    assert reason(made.read(community_trap(b"other"), HOST, NOON)) == BAD_COMMUNITY


def test_a_source_with_users_must_use_snmpv3() -> None:
    made = authenticator(b"public")
    assert reason(made.read(community_trap(), HOST, NOON)) == V3_REQUIRED
    assert isinstance(made.read(community_trap(), STRANGER, NOON), AuthenticatedTrap), "it is not in the users' file"
    assert isinstance(made.read(Controller().trap(NOON), HOST, NOON), AuthenticatedTrap)


def test_a_source_that_is_being_changed_over_may_use_both() -> None:
    made = authenticator(b"public", users=Users([user()], [source(also_v2c=True)]))
    assert isinstance(made.read(community_trap(), HOST, NOON), AuthenticatedTrap)
    assert reason(made.read(community_trap(b"other"), HOST, NOON)) == BAD_COMMUNITY


def test_without_communities_every_source_must_use_snmpv3() -> None:
    assert reason(authenticator().read(community_trap(), STRANGER, NOON)) == V3_REQUIRED


def test_a_secured_inform_that_comes_again_is_a_copy_until_it_is_forgotten() -> None:
    made, datagram = authenticator(), informing().inform(NOON)
    first = accepted(made, datagram)
    assert (first.repeated, accepted(made, datagram).repeated) == (False, True)
    made.forget(first)
    assert not accepted(made, datagram).repeated


def test_an_inform_is_answered_in_its_version_also_where_both_are_accepted() -> None:
    made, plain = authenticator(b"public"), community_trap(inform=True)
    inform = accepted(made, plain, STRANGER)
    assert made.respond(inform, NOON) == respond(plain)
    made.forget(inform)
    assert not accepted(made, plain, STRANGER).repeated
    assert CLIENT not in made.respond(accepted(made, informing().inform(NOON)), NOON), "it is encrypted"


def test_replay_protection_is_stored_before_a_trap_counts() -> None:
    storage = Storage()
    made = authenticator(storage=storage)
    made.read(Controller().trap(NOON), HOST, NOON)
    made.keep()
    assert storage.stored == 1
    authenticator(b"public", users=None).keep()


def test_a_user_that_was_added_to_the_file_is_accepted_at_once() -> None:
    class Added(Users):
        renewed = 0

        def renew(self) -> bool:
            self.renewed += 1
            self._set([user()], [source()])
            return True

    users = Added([user(name="other")], [source()])
    made = authenticator(users=users)
    assert isinstance(made.read(Controller().trap(NOON), HOST, NOON), AuthenticatedTrap)
    assert users.renewed == 1
    made.renew()
    assert users.renewed == 2, "one that was removed is dropped without a trap of its own"
    unchanged = authenticator(users=Users([user(name="other")], [source()]))
    assert reason(unchanged.read(Controller().trap(NOON), HOST, NOON)) == UNKNOWN_USER


def test_no_repr_shows_a_device() -> None:
    found = authenticator().read(Controller().trap(NOON), HOST, NOON)
    assert isinstance(found, AuthenticatedTrap)
    assert found.message is not None
    assert repr(found.message) == "VerifiedMessage()"
    assert repr(found) == f"AuthenticatedTrap({found.trap!r})"
    for secret in (CLIENT, RADIO, ENGINE):
        assert secret.hex() not in repr(found)
        assert repr(secret)[2:-1] not in repr(found)


@pytest.mark.parametrize("starts", [1, 3])
def test_each_start_of_a_receiver_is_counted(tmp_path: Path, starts: int) -> None:
    for number in range(1, starts + 1):
        file = EngineFile(tmp_path / "state")
        assert file.start(ENGINE if number == 1 else b"other") == (ENGINE, number)
        file.close()
