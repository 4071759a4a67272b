"""Secrets are compared in constant time, and every candidate is compared."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from connectors.sources.radius.decoder import RefusedPacket, read
from connectors.sources.snmp.communities import is_known

SECRETS = tuple(b"a secret of RADIUS %d" % number for number in range(4))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each comparison has found."""
    found: list[bool] = []
    real = hmac.compare_digest

    def comparing(one: bytes, other: bytes) -> bool:
        found.append(real(one, other))
        return found[-1]

    monkeypatch.setattr(hmac, "compare_digest", comparing)
    return found


@pytest.mark.parametrize("given", [*range(4), None])
def test_a_community_is_compared_with_each(given: int | None, compared: list[bool]) -> None:
    known = [b"community %d" % number for number in range(4)]
    assert is_known(b"community x" if given is None else known[given], known) is (given is not None)
    assert compared == [number == given for number in range(4)]


def accounting(secret: bytes) -> bytes:
    """Return an Accounting-Request with one attribute."""
    attributes = bytes((40, 6, 0, 0, 0, 1))
    head = bytes((4, 1)) + (20 + len(attributes)).to_bytes(2, "big")
    return head + hashlib.md5(head + bytes(16) + attributes + secret).digest() + attributes


@pytest.mark.parametrize("given", [*range(4), None])
def test_an_authenticator_is_compared_under_each_secret(given: int | None, compared: list[bool]) -> None:
    if given is None:
        with pytest.raises(RefusedPacket):
            read(accounting(b"none of them"), SECRETS)
    else:
        assert read(accounting(SECRETS[given]), SECRETS).secret == SECRETS[given]
    assert compared == [number == given for number in range(4)]
