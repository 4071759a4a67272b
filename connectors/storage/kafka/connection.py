"""Connection options of every Kafka client, from the settings: TLS or not, and which user.

Files are read again for each connection, so an exchanged password or certificate takes effect with the next connection,
without a restart. While a file cannot be read, the previous content is used: the broker decides whether it is valid.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Required, TypedDict, TypeVar

from aiokafka.errors import IllegalSaslStateError, SaslAuthenticationFailed, UnsupportedSaslMechanismError

from connectors.secrets.private_files import read_secret, refuse_open
from stream.errors import KeyFileError, TacetError, UsageError
from stream.settings import Settings

log = logging.getLogger(__name__)
T = TypeVar("T")

SYSTEM = Path("system")
"""A value in place of a file of certificates: the authorities that the machine trusts."""
_FILES_AND_NAMES = ("kafka_username", "kafka_password_file", "kafka_ca_file", "kafka_cert_file", "kafka_key_file")
_REFUSALS = (SaslAuthenticationFailed, UnsupportedSaslMechanismError, IllegalSaslStateError, ssl.SSLError)


class KafkaArguments(TypedDict, total=False):
    """Arguments of aiokafka's clients that say how to reach brokers; without TLS or a user, those of it are absent."""

    security_protocol: Required[str]
    ssl_context: ssl.SSLContext
    sasl_mechanism: str
    sasl_plain_username: str | None
    sasl_plain_password: str


class AccessRefusedError(TacetError, ConnectionError):
    """A broker refuses this user, or fails this user's checks.

    A client that has started retries, as for a broker that is away: while a password is exchanged, either side may be
    first.
    """


class Access:
    """The credentials that a client presents to brokers, and its requirements on theirs."""

    def __init__(self, settings: Settings | None = None) -> None:
        """Use these settings (default: those of the environment); UsageError if they, or their files, break a rule."""
        self._settings = Settings() if settings is None else settings
        refuse_contradictions(self._settings)
        self._file_contents = self._files()

    def arguments(self) -> KafkaArguments:
        """Return the matching options of aiokafka, with the files' present content."""
        try:
            self._file_contents = self._files()
        except UsageError as error:
            log.warning("credentials were not read again, the former ones are used: %s", error)
        return self._file_contents

    def _files(self) -> KafkaArguments:
        given = self._settings
        found: KafkaArguments = {"security_protocol": given.kafka_security_protocol}
        if speaks_tls(given):
            found["ssl_context"] = tls_context(given.kafka_ca_file, given.kafka_cert_file, given.kafka_key_file)
        password_file = given.kafka_password_file
        if password_file is not None:
            found |= {
                "sasl_mechanism": given.kafka_sasl_mechanism,
                "sasl_plain_username": given.kafka_username,
                "sasl_plain_password": _named("kafka_password_file", lambda: read_secret(password_file)),
            }
        return found

    def describe(self) -> str:
        """Return protocol and user in words, for errors; an empty text without TLS and user."""
        given = self._settings
        if given.kafka_security_protocol == "PLAINTEXT":
            return ""
        user = f", user {given.kafka_username} by {given.kafka_sasl_mechanism}" if given.kafka_username else ""
        return f" by {given.kafka_security_protocol}{user}"

    def refusal(self, server: str, error: BaseException) -> AccessRefusedError | None:
        """Return an error if a connection failed because of credentials or certificates; None for any other failure."""
        if not isinstance(error, _REFUSALS):
            return None
        reason = "the broker rejects the user"
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = f"the broker's certificate is rejected ({error.verify_message.rstrip('.')})"
        elif isinstance(error, ssl.SSLError):
            reason = f"the TLS handshake failed ({getattr(error, 'reason', None) or type(error).__name__})"
        elif isinstance(error, UnsupportedSaslMechanismError):
            reason = "the broker does not offer this mechanism"
        return AccessRefusedError(f"Kafka: {server}{self.describe()}: {reason}")


def speaks_tls(settings: Settings) -> bool:
    """Return whether traffic to brokers is encrypted."""
    return settings.kafka_security_protocol in ("SSL", "SASL_SSL")


def refuse_contradictions(settings: Settings) -> None:
    """Raise UsageError for settings that contradict each other, or for a password file that others can read."""
    protocol, tls = settings.kafka_security_protocol, speaks_tls(settings)
    wanted = {"kafka_username", "kafka_password_file"} if protocol.startswith("SASL") else set[str]()
    wanted |= {"kafka_ca_file"} if tls else set()
    allowed = wanted | ({"kafka_cert_file", "kafka_key_file"} if tls else set())
    by = f"TACET_KAFKA_SECURITY_PROTOCOL={protocol}"
    for name in _FILES_AND_NAMES:
        given = getattr(settings, name) is not None
        if given and name not in allowed:
            raise UsageError(f"{_variable(name)}: must not be set with {by}, which has no use for it")
        if name in wanted and not given:
            more = ", to 'system' for the certificates that this machine trusts" if name == "kafka_ca_file" else ""
            raise UsageError(f"{_variable(name)}: must be set with {by}{more}")
    if (settings.kafka_cert_file is None) != (settings.kafka_key_file is None):
        raise UsageError("TACET_KAFKA_CERT_FILE, TACET_KAFKA_KEY_FILE: must be set both, or neither")
    if protocol == "SASL_PLAINTEXT" and settings.kafka_sasl_mechanism == "PLAIN":
        raise UsageError(
            f"TACET_KAFKA_SASL_MECHANISM: must not be PLAIN with {by}, which sends the password in clear text"
        )


def tls_context(authorities: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return a context that checks brokers' certificates and host names; presents the client's own certificate."""
    try:
        context = ssl.create_default_context(cafile=None if authorities in (None, SYSTEM) else authorities)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"TACET_KAFKA_CA_FILE={authorities}: must be a readable file of certificates, PEM") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # overrides weaker settings of the machine
    if certificate is not None and key is not None:
        _named("kafka_key_file", lambda: refuse_open(key))
        try:
            context.load_cert_chain(certificate, key, password=lambda: b"")  # an encrypted key would prompt
        except (OSError, ssl.SSLError) as error:
            what = "must be a certificate and its own key, PEM, the key without a password"
            raise UsageError(f"TACET_KAFKA_CERT_FILE={certificate}, TACET_KAFKA_KEY_FILE={key}: {what}") from error
    return context


def _named(setting: str, read: Callable[[], T]) -> T:
    """Read a file; an error names the setting's variable as well as the file."""
    try:
        return read()
    except KeyFileError as error:
        raise KeyFileError(f"{_variable(setting)}: {error}") from None


def _variable(setting: str) -> str:
    return f"TACET_{setting.upper()}"
