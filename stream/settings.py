"""Service settings: the only place that reads the environment.

No setting changes a guarantee; guarantees are set in the policy file. The variable of a field is ``TACET_`` followed by
the field's name in capitals.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

SESSION_TIMEOUT = 10.0
"""Default of ``session_timeout``, seconds."""
SHORTEST_SESSION = 6.0
"""Least ``session_timeout``, seconds: brokers accept no less by default, and waits for brokers are fractions of it."""
OPEN_TIMEOUT = 300.0
"""Default of ``open_timeout``, seconds."""


def group_name(name: str) -> str:
    """Return the name of a consumer group; ValueError if Kafka does not accept it."""
    if re.fullmatch(r"[A-Za-z0-9._-]{1,200}", name) is None:
        raise ValueError("must be 1 to 200 letters, digits, dots, dashes or underscores")
    return name


class Settings(BaseSettings):
    """The settings: brokers, paths and logging."""

    model_config = SettingsConfigDict(env_prefix="TACET_", frozen=True)

    kafka: str | None = None
    """Bootstrap servers, ``host:port`` separated by commas."""
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Protocol for brokers: names that end in SSL use TLS; names with SASL authenticate by user name and password."""
    kafka_sasl_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = "SCRAM-SHA-512"
    """How the password is proven; PLAIN sends the password itself, so it is allowed over TLS only."""
    kafka_username: str | None = None
    """User name for SASL."""
    kafka_password_file: Path | None = None
    """File of the user's password, one line, mode 0600; it is read again for each connection."""
    kafka_ca_file: Path | None = None
    """Certificate authorities for brokers, PEM; ``system``: those that the machine trusts."""
    kafka_cert_file: Path | None = None
    """This client's certificate chain, PEM, where brokers require one."""
    kafka_key_file: Path | None = None
    """The private key of this client's certificate, PEM without a password, mode 0600."""
    snmp_communities_file: Path | None = None
    """File of accepted SNMP communities, one a line, mode 0600."""
    snmp_users_file: Path | None = None
    """File of SNMPv3 users and of the engines of each source, TOML, mode 0600."""
    snmp_state_file: Path | None = None
    """File for the state of the SNMPv3 receiver; default: beside the file of users."""
    snmptrapd_state_file: Path | None = None
    """File for the position in snmptrapd's log; default: beside the log."""
    telegraf_group: Annotated[str, AfterValidator(group_name)] = "tacet.telegraf"
    """Consumer group for telegraf's topic; each ingest that reads the topic needs a group of its own."""
    radius_clients_file: Path | None = None
    """File of RADIUS clients and their secrets, TOML, mode 0600."""
    opt_outs_file: Path | None = None
    """File of opt-outs, made by ``tacet optout add``, mode 0600."""
    hooks_file: Path | None = None
    """File of cloud systems and their secrets, TOML, mode 0600."""
    polls_file: Path | None = None
    """File of polled sources and their communities, TOML, mode 0600."""
    snmp_probe_community_file: Path | None = None
    """File of the community for probing sources, one line, mode 0600."""
    session_timeout: float = Field(default=SESSION_TIMEOUT, ge=SHORTEST_SESSION, le=300.0)
    """Seconds of silence after which a worker's partitions are assigned to another; a broker that hangs is found out
    in half of that."""
    open_timeout: float = Field(default=OPEN_TIMEOUT, ge=60.0, le=86_400.0)
    """Seconds after which a worker ends if a partition that the group assigned to it has not opened."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False
    """Log one JSON object per line instead of text."""
