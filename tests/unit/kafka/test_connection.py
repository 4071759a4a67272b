"""Connection settings: their meaning, refused combinations, and no secret in any message."""

from __future__ import annotations

import logging
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed, UnsupportedSaslMechanismError

from connectors.storage.kafka.aiokafka_client import AnsweringClient, answering
from connectors.storage.kafka.connection import Access
from stream.errors import KeyFileError, UsageError
from stream.settings import Settings

SECRET = "correct-horse"


def access(**given: object) -> Access:
    return Access(Settings.model_validate({f"kafka_{name}": value for name, value in given.items()}))


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.touch(0o600)
    path.write_text(SECRET + "\n")
    return path


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two certificates that have signed themselves, a key to each, and one key under a password."""
    folder = tmp_path_factory.mktemp("pem")
    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2", "-nodes"]
    for name in ("one", "other"):
        _openssl(folder, *new, "-subj", f"/CN={name}", "-out", f"{name}.pem", "-keyout", f"{name}.key")
    _openssl(folder, "pkcs8", "-topk8", "-in", "one.key", "-passout", "pass:x", "-out", "locked.key")
    for key in folder.glob("*.key"):
        key.chmod(0o600)
    return folder


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def sasl(password: Path, **more: object) -> dict[str, Any]:
    return {"security_protocol": "SASL_PLAINTEXT", "username": "tacet-ingest", "password_file": password, **more}


# --- what is asked for ----------------------------------------------------------------------------------------------


def test_nothing_set_is_plain_text_without_a_user() -> None:
    assert access().arguments() == {"security_protocol": "PLAINTEXT"}
    assert access().describe() == "", "nothing that an error would have to name"


def test_a_user_shows_name_and_password_by_scram_sha_512(password: Path) -> None:
    assert access(**sasl(password)).arguments() == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "tacet-ingest",
        "sasl_plain_password": SECRET,
    }


def test_tls_asks_for_a_certificate_of_the_brokers_own_name_signed_by_the_authority_given(pem: Path) -> None:
    context = access(security_protocol="SSL", ca_file=pem / "one.pem").arguments()["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert [authority["subject"] for authority in context.get_ca_certs()] == [((("commonName", "one"),),)]
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_authorities_of_the_machine_are_asked_for_by_name(pem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pem / "other.pem"))
    context = access(security_protocol="SSL", ca_file="system").arguments()["ssl_context"]
    assert [authority["subject"][0][0] for authority in context.get_ca_certs()] == [("commonName", "other")]


def test_a_certificate_is_shown_where_there_is_one(pem: Path) -> None:
    given = {"ca_file": pem / "one.pem", "cert_file": pem / "one.pem", "key_file": pem / "one.key"}
    assert "ssl_context" in access(security_protocol="SSL", **given).arguments()


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "variable"),
    [
        ({"username": "x"}, "TACET_KAFKA_USERNAME: must not be set"),
        ({"password_file": "x"}, "TACET_KAFKA_PASSWORD_FILE: must not be set"),
        ({"ca_file": "x"}, "TACET_KAFKA_CA_FILE: must not be set"),
        ({"security_protocol": "SSL"}, "TACET_KAFKA_CA_FILE: must be set"),
        ({"security_protocol": "SSL", "ca_file": "x", "username": "x"}, "TACET_KAFKA_USERNAME: must not be set"),
        ({"security_protocol": "SSL", "ca_file": "x", "cert_file": "x"}, "TACET_KAFKA_KEY_FILE: must be set both"),
        ({"security_protocol": "SASL_SSL", "ca_file": "x"}, "TACET_KAFKA_USERNAME: must be set"),
        (
            {"security_protocol": "SASL_SSL", "username": "x", "password_file": "x"},
            "TACET_KAFKA_CA_FILE: must be set with TACET_KAFKA_SECURITY_PROTOCOL=SASL_SSL, to 'system'",
        ),
        ({"security_protocol": "SASL_PLAINTEXT", "username": "x"}, "TACET_KAFKA_PASSWORD_FILE: must be set"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "username": "x", "password_file": "x", "sasl_mechanism": "PLAIN"},
            "TACET_KAFKA_SASL_MECHANISM: must not be PLAIN",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(given: dict[str, object], variable: str) -> None:
    with pytest.raises(UsageError, match=variable):
        access(**given)


@pytest.mark.parametrize(
    ("mode", "text", "rule"),
    [(0o640, SECRET, "by its owner only"), (0o604, SECRET, "by its owner only"), (0o600, "\n", "one line of text")],
)
def test_a_password_that_others_can_read_or_that_is_none_is_refused(
    password: Path, mode: int, text: str, rule: str
) -> None:
    password.write_text(text)
    password.chmod(mode)
    with pytest.raises(KeyFileError, match=f"TACET_KAFKA_PASSWORD_FILE: .*{rule}") as refused:
        access(**sasl(password))
    assert SECRET not in str(refused.value)


def test_a_password_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"TACET_KAFKA_PASSWORD_FILE: .*nothing: cannot be read"):
        access(**sasl(tmp_path / "nothing"))


def test_a_file_without_certificates_is_no_authority(password: Path) -> None:
    with pytest.raises(UsageError, match=r"TACET_KAFKA_CA_FILE=.*must be a readable file of certificates"):
        access(security_protocol="SSL", ca_file=password)


@pytest.mark.parametrize("key", ["other.key", "locked.key", "nothing.key", "one.pem"])
def test_a_key_that_does_not_open_the_certificate_is_refused_and_nobody_is_asked_for_its_password(
    pem: Path, key: str
) -> None:
    (pem / "one.pem").chmod(0o600)
    with pytest.raises(UsageError, match="TACET_KAFKA_KEY_FILE"):
        access(security_protocol="SSL", ca_file=pem / "one.pem", cert_file=pem / "one.pem", key_file=pem / key)


def test_a_key_that_others_can_read_is_refused(pem: Path, tmp_path: Path) -> None:
    key = tmp_path / "open.key"
    key.write_text((pem / "one.key").read_text())
    key.chmod(0o640)
    with pytest.raises(KeyFileError, match=r"TACET_KAFKA_KEY_FILE: .*by its owner only"):
        access(security_protocol="SSL", ca_file=pem / "one.pem", cert_file=pem / "one.pem", key_file=key)


# --- while it runs --------------------------------------------------------------------------------------------------


async def test_each_connection_shows_the_password_that_the_file_holds_then(
    password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in sasl(password).items():
        monkeypatch.setenv(f"TACET_KAFKA_{name.upper()}", str(value))
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:9")
    answering(producer)
    assert isinstance(producer.client, AnsweringClient)
    assert producer.client._connection("127.0.0.1", 9)._sasl_plain_password == SECRET
    password.write_text("another\n")
    assert producer.client._connection("127.0.0.1", 9)._sasl_plain_password == "another"


def test_while_a_file_cannot_be_read_the_last_password_is_shown_and_the_log_says_so(
    password: Path, caplog: pytest.LogCaptureFixture
) -> None:
    user = access(**sasl(password))
    password.unlink()
    with caplog.at_level(logging.WARNING):
        assert user.arguments()["sasl_plain_password"] == SECRET
    assert "TACET_KAFKA_PASSWORD_FILE" in caplog.text
    assert SECRET not in caplog.text


# --- what is said ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SaslAuthenticationFailed(SECRET), "the broker rejects the user"),
        (UnsupportedSaslMechanismError(SECRET), "the broker does not offer this mechanism"),
        (ssl.SSLError(1, SECRET), "the TLS handshake failed"),
    ],
)
def test_a_refusal_says_who_was_refused_where_and_why_and_no_secret(
    password: Path, error: Exception, said: str
) -> None:
    refusal = access(**sasl(password)).refusal("kafka:9093", error)
    assert refusal is not None
    assert str(refusal).startswith("Kafka: kafka:9093 by SASL_PLAINTEXT, user tacet-ingest by SCRAM-SHA-512: ")
    assert said in str(refusal)
    assert SECRET not in str(refusal)


def test_a_broker_that_is_away_has_refused_nobody(password: Path) -> None:
    assert access(**sasl(password)).refusal("kafka:9093", KafkaConnectionError()) is None
    assert access(**sasl(password)).refusal("kafka:9093", ConnectionRefusedError()) is None
