"""The sources to poll, and the file of their credentials.

The file is TOML (mode 0600). Users of SNMPv3 are in a file of their own, the one that TACET_SNMP_USERS_FILE names.

    [[agent]]
    source = "10.2.0.5"                         # as in the policy's sources
    community = "a read-only community"         # of a view that holds the client table only

    [[system]]
    source = "10.2.0.7"
    url = "https://10.2.0.7"
    fingerprint = "the SHA-256 of its certificate"
    sites = ["the system's name of a site"]
    token = "its key"                           # or user and password
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from connectors.secrets.secret_files import ReloadingSecrets, Table, printable, read_tables
from connectors.sources.ingest.logins import LoginRules
from connectors.sources.polls.client_tables import TABLES, client_table
from connectors.sources.polls.departures import LoginOf
from connectors.sources.polls.rest import Server
from connectors.sources.polls.rest_tables import SYSTEMS, RestAccess, RestReader
from connectors.sources.polls.schedule import PollGrid
from connectors.sources.polls.snmp_walk import CommunityReader, TableReader, UserReader
from connectors.sources.probes.methods import SNMP_PORT
from connectors.sources.snmp.usm.users import Users
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.fields import is_cloud
from stream.policy.polls import Poll
from stream.policy.sites import Site, certificate_digest


def _https(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path not in {"", "/"} or parts.query or parts.port == 0:
        msg = f"must be an address such as 'https://10.2.0.7:8443', without a path, got {url!r}"
        raise ValueError(msg)
    return url


class PolledAgent(Table):
    """A controller that is polled over SNMPv2c."""

    source: str
    community: SecretStr = Field(min_length=1)


class PolledSystem(Table):
    """A system that is polled over HTTPS."""

    source: str
    url: Annotated[str, AfterValidator(_https)]
    """Where its interface is, without a path."""
    sites: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(min_length=1, strict=False)
    """The system's own names of sites, zones or networks."""
    token: Annotated[SecretStr, AfterValidator(printable)] | None = None
    user: str | None = None
    password: SecretStr | None = None
    controller: str | None = None
    """Omada's own name of the controller (omadacId)."""
    fingerprint: Annotated[str, AfterValidator(certificate_digest)] | None = None
    """The SHA-256 of its certificate; None: an authority signed the name in ``url``."""
    ca_file: Path | None = Field(default=None, strict=False)
    """Certificates that may sign the server's; None: those that the machine trusts."""

    @property
    def server(self) -> Server:
        """Where it is, and how it proves itself."""
        return Server(self.url, self.fingerprint, self.ca_file)

    @property
    def access(self) -> RestAccess:
        """Its sites and the credentials."""
        secrets = [each.get_secret_value() if each is not None else "" for each in (self.token, self.password)]
        return RestAccess(self.sites, secrets[0], self.user or "", secrets[1], self.controller or "")


class PollsFile(Table):
    """The credentials of all polled sources but those of SNMPv3."""

    agent: tuple[PolledAgent, ...] = Field(default=(), strict=False)
    system: tuple[PolledSystem, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _named_once(self) -> PollsFile:
        sources = [each.source for each in self.agent] + [each.source for each in self.system]
        if not sources or len(set(sources)) < len(sources):
            msg = "must have at least one [[agent]] or [[system]], each with a source of its own"
            raise ValueError(msg)
        return self


class ReloadingPolls(ReloadingSecrets[PollsFile]):
    """The file's present content: a change takes effect with the next poll."""

    def __init__(self, path: Path) -> None:
        """Read it; KeyFileError if it is invalid."""
        super().__init__(path, "secrets of polls", lambda path: read_tables(path, PollsFile, "secrets of polls"))

    def agent(self, source: str) -> PolledAgent | None:
        """Return a controller's present credentials; None: the file has none."""
        self.renew()
        return next((each for each in self.content.agent if each.source == source), None)

    def system(self, source: str) -> PolledSystem | None:
        """Return a system's present credentials; None: the file has none."""
        self.renew()
        return next((each for each in self.content.system if each.source == source), None)


class PolledSource(NamedTuple):
    """A source, when it is polled, and how."""

    site: str
    source: str
    grid: PollGrid
    reader: TableReader
    check: Callable[[], Awaitable[bool]] | None = None
    """Of a source without a probe: whether it answers a request of fixed size."""
    login_of: LoginOf | None = None
    """Of a site that counts logins."""


def polled_sources(policy: PolicyDocument, secrets: ReloadingPolls | None, users: Users | None) -> list[PolledSource]:
    """Return the sources for which a policy declares a poll.

    Raises:
        UsageError: there is none, two sites poll the same source, or a poll needs a user or a community that is
            missing.
    """
    found = list(_declared(policy, secrets, users))
    if not found:
        msg = "policy: must have a [[site.NAME.poll]], has none"
        raise UsageError(msg)
    names = [each.source for each in found]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        msg = f"poll.source: must have one [[site.NAME.poll]] only, which serves all of its sites, got {repeated[0]!r}"
        raise UsageError(msg)
    return found


def _declared(policy: PolicyDocument, secrets: ReloadingPolls | None, users: Users | None) -> Iterator[PolledSource]:
    for name, site in policy.site.items():
        for poll in site.poll:
            where, grid = f"site.{name}.poll", PollGrid.of_source(name, poll.source, poll.interval)
            login_of = _login_of(site)
            logins = site.login_attribute == "user_name" and site.counts_logins
            if poll.by in TABLES:
                agent = _agent_reader(where, poll, secrets, users, logins=logins)
                yield PolledSource(name, poll.source, grid, agent, login_of=login_of)
                continue
            reader = _system_reader(where, poll, secrets, logins=logins)
            check = reader.check if is_cloud(poll.source) else None
            yield PolledSource(name, poll.source, grid, reader, check, login_of)


def _login_of(site: Site) -> LoginOf | None:
    """Return which login a user name is at a site; None if the site counts devices."""
    if not site.counts_logins:
        return None
    rules = LoginRules(site)
    return lambda user_name: rules.login(user_name, b"")


def _system_reader(where: str, poll: Poll, secrets: ReloadingPolls | None, *, logins: bool) -> RestReader:
    found = None if secrets is None else secrets.system(poll.source)
    if secrets is None or found is None:
        msg = f"{where}: needs a [[system]] in the file that TACET_POLLS_FILE names, for {poll.source!r}"
        raise UsageError(msg)
    system, access = SYSTEMS[poll.by], found.access
    if missing := sorted(name for name in system.needs if not getattr(access, name)):
        msg = f"{where}: by = {poll.by!r} needs {missing[0]} in the [[system]] of {poll.source!r}"
        raise UsageError(msg)
    try:
        if found.fingerprint is None:
            found.server.verifying()
    except OSError as error:
        msg = f"{where}: ca_file must contain certificates in PEM, got {found.ca_file} ({error.strerror})"
        raise UsageError(msg) from None
    return RestReader(system, found.server, partial(_access, secrets, poll.source), logins=logins)


def _access(secrets: ReloadingPolls, source: str) -> RestAccess:
    found = secrets.system(source)
    return RestAccess(()) if found is None else found.access


def _agent_reader(
    where: str, poll: Poll, secrets: ReloadingPolls | None, users: Users | None, *, logins: bool
) -> TableReader:
    host, port = poll.source.partition("/")[0], poll.port or SNMP_PORT
    table = client_table(poll.by, logins=logins)
    if poll.user is not None:
        if users is None or not users.has(poll.user):
            msg = f"{where}: user must be one of the file that TACET_SNMP_USERS_FILE names, got {poll.user!r}"
            raise UsageError(msg)
        return UserReader(host, port, table, users, poll.user)
    if secrets is None or secrets.agent(poll.source) is None:
        msg = f"{where}: without user needs an [[agent]] in the file that TACET_POLLS_FILE names, for {poll.source!r}"
        raise UsageError(msg)
    return CommunityReader(host, port, table, partial(_community, secrets, poll.source))


def _community(secrets: ReloadingPolls, source: str) -> bytes:
    agent = secrets.agent(source)
    return b"" if agent is None else agent.community.get_secret_value().encode()
