"""Broken and hostile requests, judged and framed: taken with a good signature alone, and no exception gets away.

Signatures are checked here once more, by hand. By hand, with as many as wanted:
``python -m tests.unit.hooks.test_hooks_fuzz 1000000``.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections import Counter
from contextlib import suppress

import orjson

from connectors.sources.cloud import decoders
from connectors.sources.cloud.config import Hook
from connectors.sources.cloud.verification import (
    DATED_REASONS,
    OLDEST,
    REFUSED_REASONS,
    RefusedError,
    verified,
    verify,
)
from connectors.sources.ingest.sighting import OBSERVATIONS
from connectors.sources.ingest_socket.frames import Batch, FrameError, TimedSighting, decode, encode_batch
from stream.records import DAY, SECOND
from tests.unit.hooks.cloud_requests import (
    OLD_SECRET,
    SECRET,
    changed,
    hook,
    join,
    located,
    octets,
    scanned,
    session,
    signature,
)

NOON = 20_000 * DAY + 12 * 3600 * SECOND
MIST_BODIES = tuple(map(octets, (join(NOON), session(NOON, NOON - SECOND), join(NOON - DAY), {"topic": "alarms"})))
MERAKI_BODIES = tuple(
    octets(body)
    for body in (scanned(NOON), scanned(NOON, OLD_SECRET), changed(scanned(NOON), lambda body: body.update(type="BLE")))
)
ODD = (
    b"null",
    b"-1",
    b"1e400",
    b"[]",
    b"{}",
    b'""',
    b'"\\u0000"',
    b"99999999999999999999",
    b"[[[[",
    b"\xff",
    b"\\ud800",
)
SECRETS = (SECRET, OLD_SECRET)


def mutated(rng: random.Random, whole: bytes) -> bytes:
    """Change, cut, double or replace some of a body."""
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        how = rng.randrange(4)
        if how == 0:
            data[place : place + 1] = bytes((rng.randrange(256),))
        elif how == 1:
            del data[place : place + rng.randint(1, 40)]
        elif how == 2:
            data[place:place] = rng.choice(ODD)
        else:
            colon = data.find(b": ", place)
            if colon >= 0:
                ends = [end for end in (data.find(b",", colon), data.find(b"}", colon)) if end > 0]
                data[colon + 2 : min(ends, default=colon + 2)] = rng.choice(ODD)
    return bytes(data)


def hmac_by_hand(secret: bytes, body: bytes) -> str:
    """Return HMAC-SHA256 as RFC 2104 writes it, in other words than the code under test."""
    padded = secret.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(octet ^ 0x36 for octet in padded) + body).digest()
    return hashlib.sha256(bytes(octet ^ 0x5C for octet in padded) + inner).hexdigest()


def signed(rng: random.Random, body: bytes) -> str | None:
    """Return a signature: often good, else of another body or secret, broken, or none."""
    how = rng.randrange(8)
    if how < 4:
        return signature(body, rng.choice(SECRETS))
    good = signature(body)
    place = rng.randrange(64)
    flipped = good[:place] + format(int(good[place], 16) ^ rng.randint(1, 15), "x") + good[place + 1 :]
    return (signature(b"", SECRET), signature(body, rng.randbytes(20)), flipped, None)[how - 4]


def fuzz(requests: int, seed: int = 1) -> Counter[str]:
    """Send so many requests; return what became of them."""
    rng, became = random.Random(seed), Counter[str]()
    mist, meraki = hook("mist"), hook("meraki")
    for _ in range(requests):
        system = rng.random()
        if system < 0.5:
            body = rng.choice(MIST_BODIES)
            body = body if rng.random() < 0.3 else mutated(rng, body)
            became[by_signature(mist, body, signed(rng, body))] += 1
        elif system < 0.9:
            body = mutated(rng, rng.choice(MERAKI_BODIES))
            became[by_secret(meraki, body)] += 1
        else:
            became[event(mutated(rng, octets(located(NOON))))] += 1
        line(mutated(rng, LINE))
    return became


def by_signature(mist: Hook, body: bytes, given: str | None) -> str:
    genuine = given in {hmac_by_hand(secret, body) for secret in SECRETS}
    try:
        output = verify(mist, body, given, NOON)
    except RefusedError as refused:
        return refusal(refused.reason, genuine=genuine)
    assert genuine
    return well(output.rows, output.dropped)


def refusal(reason: str, *, genuine: bool) -> str:
    """Check that what is genuine is refused for its form alone, and what is not, never for that."""
    assert reason in REFUSED_REASONS
    assert genuine == (reason == "malformed")
    return reason


def by_secret(meraki: Hook, body: bytes) -> str:
    try:
        output = verify(meraki, body, None, NOON)
    except RefusedError as refused:
        return refusal(refused.reason, genuine=refused.reason == "malformed")
    assert orjson.loads(body)["secret"].encode() in SECRETS
    return well(output.rows, output.dropped)


def event(body: bytes) -> str:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "no_json"
    if not isinstance(document, dict):
        return "no_json"
    output = verified(b"", [decoders.read_spaces(document)], NOON)
    return well(output.rows, output.dropped)


def well(rows: tuple[TimedSighting, ...], dropped: Counter[str]) -> str:
    """Check that what was taken passes the socket as it is, and that times are bounded."""
    assert set(dropped) <= set(DATED_REASONS)
    batch = decode(encode_batch(Batch(1, "cloud:x", rows)))
    assert isinstance(batch, Batch)
    assert all(seen.kind in OBSERVATIONS and NOON - OLDEST <= at <= NOON + 30 * SECOND for seen, at in batch.rows)
    return "taken" if rows else "nothing_in_it"


LINE = encode_batch(Batch(1, "cloud:x", verify(hook(), MIST_BODIES[0], signature(MIST_BODIES[0]), NOON).rows))


def line(data: bytes) -> None:
    """Read a line as the ingest does: whole, or not at all."""
    with suppress(FrameError):
        decode(data)


def test_of_20_000_requests_those_with_a_good_signature_are_accepted() -> None:
    became = fuzz(20_000)
    assert became.total() == 20_000
    assert min(became[each] for each in ("taken", "nothing_in_it", "bad_signature", "bad_secret", "malformed")) > 100


if __name__ == "__main__":
    print(dict(fuzz(int(sys.argv[1]), seed=random.SystemRandom().randrange(2**32))))
