"""The files that the environment names for SNMP: communities, users, and what a receiver has heard."""

from __future__ import annotations

from connectors.snmp.admission import read_communities
from connectors.snmp.communities import CommunityFile
from connectors.snmp.usm.listening import V3Files
from connectors.snmp.usm.users import UserFile
from stream.errors import UsageError
from stream.settings import Settings


def communities(settings: Settings) -> tuple[bytes, ...]:
    """Return the accepted communities, none where only SNMPv3 is heard; UsageError when no file says who is."""
    if settings.snmp_communities_file is not None:
        return read_communities(settings.snmp_communities_file)
    if settings.snmp_users_file is None:
        msg = "TACET_SNMP_COMMUNITIES_FILE: must name a file of accepted communities, one a line, mode 0600"
        raise UsageError(f"{msg} (or TACET_SNMP_USERS_FILE one of SNMPv3 users)")
    return ()


def communities_now(settings: Settings) -> tuple[bytes, ...] | CommunityFile:
    """Return the accepted communities as their file will have them while a receiver listens."""
    file = settings.snmp_communities_file
    return communities(settings) if file is None else CommunityFile(file)


def probe_community(settings: Settings) -> bytes | None:
    """Return the community with which sources are asked whether they are alive; None where no file of it is named."""
    file = settings.snmp_probe_community_file
    if file is None:
        return None
    communities = read_communities(file)
    if len(communities) != 1:
        msg = f"{file}: must hold one community, got {len(communities)}"
        raise UsageError(msg)
    return communities[0]


def v3_files(settings: Settings) -> V3Files | None:
    """Return who may speak SNMPv3, and where what was heard is kept; None where no file of users is named."""
    users = settings.snmp_users_file
    if users is None:
        return None
    return V3Files(UserFile(users), settings.snmp_state_file or users.with_name(f"{users.name}.state"))
