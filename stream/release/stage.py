"""The release stage: turns windows and days into private records, ledger entries and their charges."""

from __future__ import annotations

from collections.abc import Mapping

from stream.errors import DataError
from stream.keys import Keys
from stream.records import Charge, DayClosed, OccupancyWindow, Published, WindowCharges
from stream.release.attribute_stage import AttributeReleases, attribute_plans
from stream.release.count_plan import count_plans
from stream.release.counts import CountReleases
from stream.release.ledger_writer import LedgerWriter
from stream.release.state import ReleaseState, blocked_until, continued, decode_release_state, encode_release_state
from stream.release.thresholds import ThresholdReleases
from stream.release.validation import Policy

MECHANISM_VERSION = "1"
"""Version of everything that decides a released byte; a state of another version is rejected."""


class ReleaseStage:
    """The release stage of one site."""

    def __init__(self, policy: Policy, site: str, keys: Keys, attempt: int = 1) -> None:
        writer = LedgerWriter.of(policy, site, keys, attempt)
        self._writer = writer
        self._counts = CountReleases(policy, writer, count_plans(policy, site))
        self._thresholds = ThresholdReleases(policy, writer)
        self._attributes = AttributeReleases(policy, writer, attribute_plans(policy, site, keys))

    def initial(self) -> ReleaseState:
        """Return the state before the first window."""
        return ReleaseState()

    def step(
        self, state: ReleaseState, item: OccupancyWindow | DayClosed
    ) -> tuple[ReleaseState, list[Published | WindowCharges]]:
        """Release one window or one day's attributes; each record follows its ledger entry.

        Raises:
            KeyFileError: the day's key no longer exists; nothing of this item is released.
        """
        outputs: list[Published | Charge]
        if isinstance(item, OccupancyWindow):
            late = item.window_end <= state.released_until
            outputs = list(self._counts.window(state, item))
            if not late:
                outputs += self._thresholds.window(state, item)
            state.charged.forget(item.window_end)
        else:
            outputs = list(self._attributes.day(state, item))
        charges = tuple(output for output in outputs if isinstance(output, Charge))
        published: list[Published | WindowCharges] = [output for output in outputs if isinstance(output, Published)]
        if charges:
            published.append(WindowCharges(self._writer.site, item.window_end, charges))
        return state, published

    def prepare(self, state: ReleaseState) -> None:
        """Compute one part of the next window in advance, if there is any; released bytes do not change."""
        self._counts.prepare(state)

    def encode(self, state: ReleaseState) -> bytes:
        """Return the state's bytes."""
        operators, runs = self._counts.operators(), self._thresholds.operators()
        parts = {name: operators[name].encode(each) for name, each in state.operator_states.items()}
        parts |= {name: runs[name].encode(each) for name, each in state.runs.items()}
        return encode_release_state(state, dict(sorted(parts.items())))

    def decode(self, data: bytes) -> ReleaseState:
        """Decode a state; DataError when it belongs to other releases."""
        state, parts = decode_release_state(data)
        operators, runs, keys = self._counts.operators(), self._thresholds.operators(), self._counts.publication_keys()
        unknown = set(parts) - operators.keys() - runs.keys() or {
            name for name, key in state.publication_keys.items() if keys.get(name) != key
        }
        if unknown:
            msg = f"release state: must belong to this policy's releases, has {sorted(unknown)[0]}"
            raise DataError(msg)
        state.operator_states = {
            name: operators[name].decode(part) for name, part in parts.items() if name in operators
        }
        state.runs = {name: runs[name].decode(part) for name, part in parts.items() if name in runs}
        return state

    def migrate(self, data: bytes, now: Mapping[str, frozenset[str]]) -> ReleaseState:
        """Return the state with which these releases continue those of another policy; ledger and charges are retained.

        ``now`` maps each zone of the other policy to its current zones. Groups and filters restart from an empty state.
        A publication continues if its ``PublicationKey`` is unchanged; a release that carries publications and restarts
        must wait. A run of changes continues, with its filter, if its day was paid on the current terms.
        """
        state, parts = decode_release_state(data)
        state.queried_days.rename(now)
        state.charged.rename(now)
        state.ledger.budgets.rename(now)
        old, new = state.publication_keys, self._counts.publication_keys()
        continuing = continued(old, new)
        ended = {name: key for name, key in old.items() if name not in continuing.values()}
        started = {name: key for name, key in new.items() if name not in continuing}
        if state.released_until >= 0:
            state.blocked_until = max(state.blocked_until, blocked_until(state.released_until, ended, started))
        state.publication_keys = {name: new[name] for name in continuing}
        self._counts.carry_over(state, continuing, parts)
        self._counts.continue_changes(state, parts)
        self._thresholds.carry_over(state, parts)
        return state
