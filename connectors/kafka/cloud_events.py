"""CloudEvents headers of private records on Kafka (CloudEvents 1.0, Kafka protocol binding, binary mode).

The value stays the record, byte for byte as in an outbox; the headers say to any consumer what the record says itself.
All of it follows from the policy and the clock: the name of a release, its window, its kind.
"""

from __future__ import annotations

from stream.records import ReleaseId
from stream.schemas import rfc3339

Headers = list[tuple[str, bytes]]
TYPES = {False: "tacet.count.v1", True: "tacet.attribute.v1"}
"""``ce_type`` of a record, by whether it is of an attribute."""
_PRIVATE = "tacet.private."
_ATTRIBUTE_PARTS = 3


def headers_of(topic: str, identity: str, time_ms: int) -> Headers:
    """Return the headers of a record; none where its topic is no private one.

    Args:
        topic: on which it is published.
        identity: its release id, which becomes ``ce_id``: copies of a record have the same.
        time_ms: end of the window with which it is published.
    """
    if not topic.startswith(_PRIVATE):
        return []
    named = ReleaseId.parse(identity)
    texts = {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": identity,
        "ce_source": f"/tacet/{named.site}",
        "ce_type": TYPES[named.where.count("/") == _ATTRIBUTE_PARTS - 1],
        "ce_time": rfc3339(time_ms * 1000),
        "ce_subject": named.release,
    }
    return [(name, text.encode()) for name, text in texts.items()]
