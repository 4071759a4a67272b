"""What the release stage remembers, and the byte form of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from stream.accounting.charged import ChargedWindows, decode_charged, encode_charged
from stream.accounting.ledger import LedgerState, decode_ledger, encode_ledger
from stream.envelope import join_parts, split_parts
from stream.records import Micros
from stream.release.asked import AskedDays, decode_asked, encode_asked
from stream.release.carried import Owner
from stream.release.paid_days import PaidDays, decode_paid, encode_paid


@dataclass(slots=True)
class ReleaseState:
    """The ledger, and per release and epsilon the state of its post-processing (restricted)."""

    ledger: LedgerState = field(default_factory=LedgerState)
    smoothing: dict[str, Any] = field(default_factory=dict)
    """``release/epsilon`` -> state."""
    key_day: int = -1
    """Key day of the latest window."""
    asked: AskedDays = field(default_factory=AskedDays)
    """Zones' days of the last month that were asked."""
    closed: str = ""
    """Latest local day that was released: a date that a change of time zone brings again is left out."""
    charged: ChargedWindows = field(default_factory=ChargedWindows)
    """What the latest days' count releases were charged."""
    through: Micros = -1
    """End of the latest window: it and earlier ones were charged and are not released again."""
    coverage: dict[str, Fraction] = field(default_factory=dict)
    """The site-local day at hand -> least coverage of its windows so far."""
    carried: dict[str, Owner] = field(default_factory=dict)
    """Release -> what the publication that it carries belongs to."""
    waits: Micros = -1
    """End of the last window in which a release that carries publications does not begin."""
    paid: PaidDays = field(default_factory=PaidDays)
    """The privacy days that were paid for as a whole."""


def encode_release_state(state: ReleaseState, smoothing: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a state whose post-processing is encoded already."""
    head = {"ledger": encode_ledger(state.ledger), "day": state.key_day, "through": state.through}
    head |= {"closed": state.closed}
    coverage = {day: str(least) for day, least in state.coverage.items()}
    carried = {name: owner.document() for name, owner in sorted(state.carried.items())}
    head |= {"asked": encode_asked(state.asked), "charged": encode_charged(state.charged)}
    head |= {"coverage": coverage, "carried": carried, "waits": state.waits}
    return join_parts(head | ({"paid": encode_paid(state.paid)} if state.paid.terms else {}), smoothing)


def decode_release_state(data: bytes) -> tuple[ReleaseState, dict[str, bytes]]:
    """Return the state without its post-processing, and the bytes of that by name."""
    head, parts = split_parts(data)
    coverage = {day: Fraction(least) for day, least in head["coverage"].items()}
    ledger = decode_ledger(head["ledger"])
    asked, charged = decode_asked(head["asked"]), decode_charged(head["charged"])
    carried = {name: Owner.of_document(document) for name, document in head["carried"].items()}
    places = (head["day"], asked, head["closed"], charged, head["through"], coverage)
    paid = decode_paid(head.get("paid", {}))
    return ReleaseState(ledger, {}, *places, carried, head["waits"], paid), parts
