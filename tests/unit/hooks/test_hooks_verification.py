"""Whether a request is genuine: by a signature over its very octets, or by the secret within it, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.sources.cloud.config import read_hooks
from connectors.sources.cloud.decoders import NO_CLIENT
from connectors.sources.cloud.verification import (
    AHEAD,
    BAD_SECRET,
    BAD_SIGNATURE,
    MALFORMED,
    OLD,
    RefusedError,
    verify,
)
from stream.errors import KeyFileError
from stream.records import DAY, SECOND
from tests.unit.hooks.cloud_requests import FILE, OLD_SECRET, SECRET, hook, join, octets, scanned, signature

NOON = 20_000 * DAY + 12 * 3600 * SECOND
BODY = octets(join(NOON))


@pytest.mark.parametrize("secret", [SECRET, OLD_SECRET])
def test_both_secrets_are_good_while_one_is_being_changed(secret: bytes) -> None:
    assert len(verify(hook(), BODY, signature(BODY, secret), NOON).rows) == 1
    assert len(verify(hook("meraki"), octets(scanned(NOON, secret)), None, NOON).rows) == 1


@pytest.mark.parametrize(
    "given",
    [
        None, "", "0" * 64, signature(BODY, b"another-secret-of-octets"), signature(BODY + b" "), signature(BODY)[:-1],
        f"sha256={signature(BODY)}", signature(BODY)[:-1] + "é", signature(BODY, b""),
    ],
)  # fmt: skip
def test_a_body_not_signed_by_a_known_secret_is_a_forgery(given: str | None) -> None:
    with pytest.raises(RefusedError, match=f"^{BAD_SIGNATURE}$"):
        verify(hook(), BODY, given, NOON)


def test_an_unsigned_body_is_not_parsed() -> None:
    with pytest.raises(RefusedError, match=f"^{BAD_SIGNATURE}$"):
        verify(hook(), b"{", "0" * 64, NOON)
    with pytest.raises(RefusedError, match=f"^{MALFORMED}$"):
        verify(hook(), b"{", signature(b"{"), NOON)


@pytest.mark.parametrize("secret", [None, "", 5, ["a-secret-of-16-octets"], "a-secret-of-16-octet", "\ud800"])
def test_a_body_without_the_secret_is_a_forgery(secret: object) -> None:
    body = octets(scanned(NOON) | {"secret": secret})
    with pytest.raises(RefusedError, match=f"^({BAD_SECRET}|{MALFORMED})$"):  # half a letter is no JSON
        verify(hook("meraki"), body, signature(body), NOON)


def test_rows_too_old_or_in_the_future_are_dropped_for_their_own_reasons() -> None:
    times = [NOON + seconds * SECOND for seconds in (-181, -180, 0, 30, 31)]
    sent = [*map(join, times), join(NOON, mac="ff" * 6)]
    body = octets({"topic": "client-join", "events": [each["events"][0] for each in sent]})
    verdict = verify(hook(), body, signature(body), NOON)
    assert [row.at for row in verdict.rows] == times[1:4]
    assert verdict.dropped == {OLD: 1, AHEAD: 1, NO_CLIENT: 1}


def test_copies_have_one_tag_and_another_body_another() -> None:
    tags = {verify(hook(), body, signature(body), NOON).tag for body in (BODY, BODY, BODY + b"\n")}
    assert len(tags) == 2


def test_a_verdict_is_shown_without_what_it_holds() -> None:
    assert repr(verify(hook(), BODY, signature(BODY), NOON)) == "VerifiedRequest(dropped=Counter())"


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "hooks.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_systems_and_secrets_come_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = read_hooks(written(tmp_path, FILE))
    assert [each.name for each in file.hook] == ["mist", "meraki"]
    assert SECRET.decode() not in repr(file)
    with pytest.raises(KeyFileError, match="readable by its owner only"):
        read_hooks(written(tmp_path, FILE, 0o640))


def test_a_system_has_one_secret_or_two_while_one_is_being_changed(tmp_path: Path) -> None:
    one, two = f'"{SECRET.decode()}"', f'"{SECRET.decode()}", "{OLD_SECRET.decode()}"'
    file = read_hooks(written(tmp_path, FILE.replace(two, one)))
    assert [each.octets for each in file.hook] == [(SECRET,), (SECRET,)]
    for secrets in ("", f'{two}, "a-third-secret-of-octets"'):
        with pytest.raises(KeyFileError, match="secrets"):
            read_hooks(written(tmp_path, FILE.replace(two, secrets)))


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ("a-secret-of-16-octets", "short-secret", "at least 16 octets"),
        ('name = "meraki"', 'name = "mist"', "a name of its own"),
        ('validator = "a-validator"', "", "validator must be given with system = 'meraki'"),
        ('source = "cloud:mist"', 'source = "10.2.0.5"', "begin with 'cloud:'"),
        (FILE, "", "at least one"),
        (FILE, "secrets = [", "must be TOML"),
        (
            FILE,
            '[[stream]]\nname = "s"\nsystem = "spaces"\nsource = "cloud:s"\nurl = "http://example.org/"\n'
            'api_key = "a-secret-of-16-octets"',
            "begins with https",
        ),
        (
            FILE,
            '[[stream]]\nname = "s"\nsystem = "spaces"\nsource = "cloud:s"\nurl = "https://example.org/"\n'
            'api_key = "a-sécret-of-16-octets"',
            "api_key: must be printable ASCII",
        ),
    ],
)
def test_a_file_that_is_not_as_it_must_be_is_refused_without_its_secrets(
    before: str, after: str, rule: str, tmp_path: Path
) -> None:
    with pytest.raises(KeyFileError, match=rule) as refused:
        read_hooks(written(tmp_path, FILE.replace(before, after)))
    assert "short-secret" not in str(refused.value)
    assert 'octets"' not in str(refused.value)
