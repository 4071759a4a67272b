"""A signed head has one spelling: the bytes that 'tacet audit sign' writes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from connectors.operations.audit.signed_heads import read_bundle_file, read_heads
from stream.accounting.audit import ChainLink
from stream.accounting.signed_heads import parse_head, sign_head
from stream.errors import AuditError

FIRST = sign_head(
    None, {"dbh": ChainLink(1, "ab" * 32)}, "2026-01-05T00:00:00Z", Ed25519PrivateKey.from_private_bytes(bytes(32))
)
SECOND = sign_head(
    FIRST, {"dbh": ChainLink(1, "ab" * 32)}, "2026-01-06T00:00:00Z", Ed25519PrivateKey.from_private_bytes(bytes(32))
)
LINE = SECOND.to_bytes()

SPELLINGS: dict[str, Callable[[bytes], bytes]] = {
    "a boolean": lambda line: line.replace(b'"number":1', b'"number":true'),
    "a boolean sequence": lambda line: line.replace(b'"sequence":1', b'"sequence":true'),
    "a float": lambda line: line.replace(b'"number":1', b'"number":1.0'),
    "upper case": lambda line: re.sub(rb'(?<="signature":")[0-9a-f]+', lambda found: found[0].upper(), line),
    "spaces in hexadecimal": lambda line: re.sub(rb'(?<="signature":")..', rb"\g<0> ", line),
    "a key twice": lambda line: line.replace(b'{"head":', b'{"signature":"","head":'),
    "an inner key twice": lambda line: line.replace(b'"number":1', b'"number":7,"number":1'),
    "a carriage return": lambda line: line + b"\r",
    "a space": lambda line: line.replace(b'":', b'": '),
    "another order": lambda line: re.sub(rb'\{("head":.*),("signature":"[0-9a-f]+")\}', rb"{\2,\1}", line),
    "an escape": lambda line: line.replace(b'"dbh"', b'"\\u0064bh"'),
    "one more key": lambda line: line.replace(b'{"head":', b'{"a":0,"head":'),
    "a number as text": lambda line: line.replace(b'"number":1', b'"number":"1"'),
    "a huge number": lambda line: line.replace(b'"number":1', b'"number":"%s"' % (b"9" * 40)),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_head_in_another_spelling_is_none(spelling: str, tmp_path: Path) -> None:
    other = SPELLINGS[spelling](LINE)
    assert other != LINE
    file = tmp_path / "heads"
    file.write_bytes(FIRST.to_bytes() + b"\n" + other + b"\n")
    for read in (read_heads, read_bundle_file):
        with pytest.raises(AuditError, match="signed head"):
            read(file)


@pytest.mark.parametrize("between", [b"\r", b"\r\n", b"\n\n", b"\x0b\n", b""])
def test_lines_end_in_one_way(between: bytes, tmp_path: Path) -> None:
    file = tmp_path / "heads"
    file.write_bytes(FIRST.to_bytes() + between + LINE + b"\n")
    with pytest.raises(AuditError):
        read_heads(file)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert parse_head(LINE) == SECOND
    (tmp_path / "heads").write_bytes(FIRST.to_bytes() + b"\n" + LINE + b"\n")
    assert read_heads(tmp_path / "heads") == [FIRST, SECOND]
    (tmp_path / "none").write_bytes(b"")
    assert read_heads(tmp_path / "none") == []
