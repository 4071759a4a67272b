"""What keeps workers from going on where their ledger ends: keys that were retired, windows that were begun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from connectors.kafka.bounded import read_one
from connectors.keyfile import FileKeys
from connectors.reports.ways import NEW_LEDGER, Finding, Way
from stream.errors import LaterVersionError
from stream.keys import fingerprint
from stream.messages import refuse_unread
from stream.runners.agreement import Control
from stream.schemas import OBSERVATIONS

RETIRE = Way(
    "stop ingests and workers, 'tacet key retire --kafka' with a new key ('tacet key create'), start them with that",
    "budgets and account go on; presence, groups and filters begin anew, and what was not read is lost; windows that "
    "were begun are charged as if they had been released, and never are",
)
ACCEPT_LOSS = Way(
    "'tacet worker --accept-loss' goes on from the first message that is there",
    "what was not read is lost for good: the windows up to the next heartbeat have coverage 0, and are charged",
)
_AGAIN = Way("'tacet key retire' once more, with the same keys", "none: what is done is passed by")
_THAT_VERSION = Way("upgrade the workers to the version of the ingests", "none: nothing was passed over")
_ITS_KEY = Way("give the key of the ledger that goes on", "none")


def ways_after_loss(begun: int) -> tuple[Way, ...]:
    """Return what can be done where observations are gone; windows that were begun may not come out again without."""
    if not begun:
        return (ACCEPT_LOSS,)
    entries = f"{begun} ledger entries were published behind the state"
    return (ACCEPT_LOSS, Way(f"{entries}: where that stops since one would now differ, {RETIRE.do}", RETIRE.price))


def of_key(control: Control, keys: FileKeys | None) -> Iterator[Finding]:
    """A key that is not the cluster's, or no longer."""
    if keys is not None and keys.ledger in control.retired:
        yield Finding(f"the key is that of ledger {keys.ledger}, which has ended: it was retired", (_ITS_KEY,))
    elif keys is not None and control.key not in (None, fingerprint(keys)):
        what = "the key is not the one this cluster was begun with"
        yield Finding(what, (Way("give that key", "none"), RETIRE, NEW_LEDGER))


async def of_next(servers: str, partition: int, position: int, end: int) -> list[Finding]:
    """The message that is next, where only a later version can read it."""
    message = await read_one(servers, OBSERVATIONS, partition, position) if position < end else None
    try:
        if message is not None:
            refuse_unread(message[1])
    except LaterVersionError:
        what = f"partition {partition}: the message at offset {position} is of a later version, whose ingest wrote it"
        return [Finding(what, (_THAT_VERSION,))]
    return []


def of_ended(partition: str, head: Mapping[str, Any], control: Control) -> Iterator[Finding]:
    """A partition whose ledger has ended, and where the one that follows has not begun."""
    if control.key not in (None, head["key"]):
        yield Finding(f"{partition}: its ledger has ended, and the partition has not been taken over", (_AGAIN,))
