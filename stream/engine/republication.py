"""Republication: lost records that were published are reproduced from their observations.

The observations of a site are processed again, from the first one on. As long as the resulting entries equal those of
the ledger, byte for byte, the records are equal too: each entry is chained to all earlier ones and commits to its
input, and the noise follows from the keys. Nothing is charged, and no other noise is drawn. A site stops at the first
entry that differs, and at a day whose key is destroyed. Records that were not lost are compared with the reproduced
ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import orjson

from stream.engine.outputs import OutputRecord
from stream.engine.partition import PartitionEngine
from stream.errors import AuditError, FinalityError, KeyFileError
from stream.keys import Keys
from stream.pipeline import Options
from stream.policy.document import PolicyDocument
from stream.records import Micros
from stream.release.validation import Policy
from stream.schemas import AUDIT, is_private


class Republication:
    """Reproduces the lost records of all sites."""

    def __init__(
        self, policy: Policy, earlier: Iterable[PolicyDocument], keys: Keys, options: Options, entries: Iterable[bytes],
        published: Mapping[str, bytes], versions: Collection[str],
    ) -> None:  # fmt: skip
        """Start before the first observation.

        Args:
            policy: the current policy.
            earlier: the other policies under which entries were made, in the order of acceptance.
            keys: the keys of the ledger.
            options: the options of the run that made the records.
            entries: the committed ledger of all sites, each site's in order.
            published: the existing records, by release id.
            versions: the mechanism versions that may have made entries.

        Raises:
            UsageError: another mechanism version may have made entries: equal entries would not prove equal records.
        """
        accepted = [each for each in earlier if each.version != policy.version]
        self.lost: list[OutputRecord] = []
        """The lost records, in the order in which they were published."""
        self.stopped: dict[str, str] = {}
        """Site -> the reason why it stopped before the end of its ledger."""
        self._published = published
        self._engines: dict[str, PartitionEngine] = {}
        self._charged: dict[str, set[str]] = {}
        self._through: dict[str, int] = {}
        for site, values in _by_site(entries).items():
            engine = PartitionEngine(policy, keys, options, accepted=accepted, versions=versions)
            engine.expect_replay(values)
            self._engines[site] = engine
            self._charged[site] = {orjson.loads(value)["release_id"] for value in values}

    def take(self, site: str, value: bytes, stamp: Micros | None = None) -> None:
        """Process a site's next message, as it was stored; ``stamp`` as in ``PartitionEngine.process_in_steps``.

        AuditError if an existing record differs from the reproduced one.
        """
        engine = self._engines.get(site)
        if engine is None or site in self.stopped or not engine.has_unreplayed_entries():
            return
        try:
            for outputs, _ in engine.process_in_steps(0, None, value, stamp):
                self._collect(site, outputs)
        except FinalityError:
            self.stopped[site] = "its next entry was made from other observations, or from another first window"
        except KeyFileError:
            self.stopped[site] = "the key of the next day is gone"

    def finish(self) -> None:
        """Note which sites lack observations, after the last message."""
        for site, engine in self._engines.items():
            if engine.has_unreplayed_entries():
                self.stopped.setdefault(site, "the observations end before its ledger does")

    def _collect(self, site: str, outputs: Iterable[OutputRecord]) -> None:
        for output in outputs:
            if output.topic == AUDIT:
                self._collect_entry(site, output)
            elif is_private(output.topic) and self._is_settled(site, output):
                self._compare(output)

    def _collect_entry(self, site: str, output: OutputRecord) -> None:
        """Record the end of the ledger; records beyond it have not been published."""
        if orjson.loads(output.value)["release_id"] in self._charged[site]:
            self._through[site] = max(self._through.get(site, 0), output.timestamp_ms)

    def _is_settled(self, site: str, output: OutputRecord) -> bool:
        """Return whether a record was published: it was charged, or it is a free record of a charged window."""
        return output.id in self._charged[site] or output.timestamp_ms <= self._through.get(site, 0)

    def _compare(self, output: OutputRecord) -> None:
        published = self._published.get(output.id)
        if published is None:
            self.lost.append(output)
        elif published != output.value:
            msg = f"release {output.id}: was published and would now differ; nothing is published again"
            raise AuditError(msg)


def _by_site(entries: Iterable[bytes]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for value in entries:
        found.setdefault(orjson.loads(value)["site"], []).append(value)
    return found
