"""The sources to poll and the credentials for them: a policy's polls, and a private file of secrets.

The file is TOML (mode 0600). Users of SNMPv3 are in a file of their own, the one that TACET_SNMP_USERS_FILE names.

    [[agent]]
    source = "10.2.0.5"                         # as in the policy's sources
    community = "a read-only community"         # of a view that holds the client table only
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, SecretStr, model_validator

from connectors.secrets.secret_files import ReloadingSecrets, Table, read_tables
from connectors.sources.polls.client_tables import TABLES
from connectors.sources.polls.schedule import PollGrid
from connectors.sources.polls.snmp_walk import CommunityReader, TableReader, UserReader
from connectors.sources.probes.methods import SNMP_PORT
from connectors.sources.snmp.usm.users import Users
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.polls import Poll


class PolledAgent(Table):
    """A controller that is polled over SNMPv2c."""

    source: str
    community: SecretStr = Field(min_length=1)


class PollsFile(Table):
    """The credentials of all polled sources but those of SNMPv3."""

    agent: tuple[PolledAgent, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _named_once(self) -> PollsFile:
        sources = [each.source for each in self.agent]
        if not sources or len(set(sources)) < len(sources):
            msg = "must have at least one [[agent]], each with a source of its own"
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


class PolledSource(NamedTuple):
    """A source, when it is polled, and how."""

    site: str
    source: str
    grid: PollGrid
    reader: TableReader


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
        msg = f"poll.source: must be polled for one site only, which counts for all of its sites, got {repeated[0]!r}"
        raise UsageError(msg)
    return found


def _declared(policy: PolicyDocument, secrets: ReloadingPolls | None, users: Users | None) -> Iterator[PolledSource]:
    for name, site in policy.site.items():
        for poll in site.poll:
            reader = _reader(f"site.{name}.poll", poll, secrets, users)
            yield PolledSource(name, poll.source, PollGrid.of_source(name, poll.source, poll.interval), reader)


def _reader(where: str, poll: Poll, secrets: ReloadingPolls | None, users: Users | None) -> TableReader:
    host, port, table = poll.source.partition("/")[0], poll.port or SNMP_PORT, TABLES[poll.by]
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
