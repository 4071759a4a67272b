"""The probes that a policy declares, each with what it needs to ask."""

from __future__ import annotations

from connectors.intake.vouching import Pair
from connectors.probes import https, snmp
from connectors.probes.asking import Asking
from connectors.probes.icmp import Echo, check_allowed
from connectors.snmp.usm.users import Users
from stream.errors import UsageError
from stream.policy.document import Policy
from stream.policy.probes import Probe


def declared(policy: Policy, users: Users | None, community: bytes | None) -> dict[Pair, Asking]:
    """Return how each source of each site is asked that a probe is declared for.

    Raises:
        UsageError: a probe needs a user, a community or a right that is not there.
    """
    return {
        (name, probe.source): _asking(f"site.{name}.probe", probe, users, community)
        for name, site in policy.site.items()
        for probe in site.probe
    }


def provoked(policy: Policy) -> dict[Pair, tuple[str, int]]:
    """Return where each source is asked whose probe says so with a wrong community."""
    return {
        (name, probe.source): (_host(probe), probe.port or snmp.PORT)
        for name, site in policy.site.items()
        for probe in site.probe
        if probe.wrong_community
    }


def _host(probe: Probe) -> str:
    return probe.source.partition("/")[0]


def _asking(where: str, probe: Probe, users: Users | None, community: bytes | None) -> Asking:
    host = _host(probe)
    if probe.by == "icmp":
        check_allowed(host)
        return Echo(host)
    if probe.by == "https":
        return https.Head(host, probe.port or https.PORT, probe.name, probe.fingerprint)
    port = probe.port or snmp.PORT
    if probe.user is not None:
        if users is None or not users.has(probe.user):
            msg = f"{where}: user must be one of the file that TACET_SNMP_USERS_FILE names, got {probe.user!r}"
            raise UsageError(msg)
        return snmp.ByUser(host, port, users, probe.user)
    if community is None:
        msg = (
            f"{where}: by 'snmp' without user needs TACET_SNMP_PROBE_COMMUNITY_FILE, a file of one community, mode 0600"
        )
        raise UsageError(msg)
    return snmp.ByCommunity(host, port, community)
