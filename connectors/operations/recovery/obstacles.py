"""Findings and remedies, as ``tacet recover`` prints them, and the remedies that several findings of a store share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remedy:
    """One remedy, with its price."""

    do: str
    price: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and its remedies, cheapest first."""

    what: str
    remedies: tuple[Remedy, ...]


NEW_LEDGER = Remedy(
    "begin a new store with a new key ('tacet key create'), with --from behind the last window that was released; "
    "keep the old store for its account; where its books are whole, 'tacet key retire' does that and budgets go on",
    "but for 'key retire' budgets begin anew, and so does the privacy day at hand, which is paid for again; what was "
    "released so far is in "
    "the old account only: whoever reads both adds them up; "
    "audiences begin with new outboxes",
)
COPY_OF_STORE = Remedy(
    "put back the newest whole copy of the store, as new as the mark or newer", "none: nothing is released twice"
)
SAME_OBSERVATIONS = Remedy(
    "'tacet run --observations' with the recording from which the missing windows were made, under the same policy "
    "and key: the same observations make the same entries again",
    "none: anything that would come out differently stops the run",
)
KEY_COPY = Remedy(
    "put a copy of the key file back, readable by its owner only, beside its .mark",
    "none: a copy from before its last step forward steps forward with the next release",
)
REPUBLISH = Remedy(
    "'tacet republish' with the observations from which they were made, under the same policy and key",
    "none: the same bytes, at no cost; what would come out differently is not published",
)


def left_out(audience: str) -> Remedy:
    """Return the remedy of doing nothing about lost records."""
    return Remedy(
        "go on without them",
        f"they are not given to {audience} again, and 'tacet audit verify' goes on to miss them",
    )
