"""Service settings: the only place that reads the environment.

Nothing here changes a guarantee; what does is in the policy file. Every variable is ``TACET_`` and the
field's name in capitals.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

SESSION_TIMEOUT = 10.0
"""Seconds, unless they are set; a worker is silent for so long when its partitions go to another."""
SHORTEST_SESSION = 6.0
"""Seconds; Kafka takes no less unless it is told to, and waits for brokers are parts of it."""


def group_name(name: str) -> str:
    """Return a name under which Kafka can keep positions; ValueError for any other."""
    if re.fullmatch(r"[A-Za-z0-9._-]{1,200}", name) is None:
        raise ValueError("must be 1 to 200 letters, digits, dots, dashes or underscores")
    return name


class Settings(BaseSettings):
    """Brokers, paths, and how to log."""

    model_config = SettingsConfigDict(env_prefix="TACET_", frozen=True)

    kafka: str | None = None
    """Bootstrap servers, ``host:port`` separated by commas."""
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How brokers are spoken to: those that end in SSL are TLS, those of SASL show a user's name and password."""
    kafka_sasl_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = "SCRAM-SHA-512"
    """How the password is shown to be known; PLAIN sends it, so it goes over TLS only."""
    kafka_username: str | None = None
    """The user's name, for SASL."""
    kafka_password_file: Path | None = None
    """File of the user's password, one line, mode 0600; read anew for each connection."""
    kafka_ca_file: Path | None = None
    """Certificates that may sign a broker's, PEM; ``system`` for those that the machine trusts."""
    kafka_cert_file: Path | None = None
    """This client's certificate and what it was signed by, PEM, where brokers ask for one."""
    kafka_key_file: Path | None = None
    """Its private key, PEM without a password, mode 0600."""
    snmp_communities_file: Path | None = None
    """File of accepted SNMP communities, one a line, mode 0600."""
    snmp_users_file: Path | None = None
    """File of SNMPv3 users and of the engines of each source, TOML, mode 0600."""
    snmp_state_file: Path | None = None
    """File in which a receiver of SNMPv3 keeps what it has heard; beside the file of users unless it is set."""
    snmptrapd_state_file: Path | None = None
    """File in which it is kept how far snmptrapd's log was read; beside the log unless it is set."""
    telegraf_group: Annotated[str, AfterValidator(group_name)] = "tacet.telegraf"
    """Under this name Kafka keeps how far telegraf's topic was read; each ingest that reads it needs one of its own."""
    radius_clients_file: Path | None = None
    """File of RADIUS clients and their secrets, TOML, mode 0600."""
    hooks_file: Path | None = None
    """File of cloud systems that send or are read, and their secrets, TOML, mode 0600."""
    snmp_probe_community_file: Path | None = None
    """File of the community with which sources are asked whether they are alive, one line, mode 0600."""
    session_timeout: float = Field(default=SESSION_TIMEOUT, ge=SHORTEST_SESSION, le=300.0)
    """Seconds of silence after which a worker's partitions go to another; half as long is a broker waited for."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False
    """One JSON object a line instead of text."""
