"""Service settings: the only place that reads the environment.

Nothing here changes a guarantee; what does is in the policy file. Every variable is ``TACET_`` and the
field's name in capitals.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

SESSION_TIMEOUT = 10.0
"""Seconds, unless they are set; a worker is silent for so long when its partitions go to another."""
SHORTEST_SESSION = 6.0
"""Seconds; Kafka takes no less unless it is told to, and waits for brokers are parts of it."""


class Settings(BaseSettings):
    """Brokers, paths, and how to log."""

    model_config = SettingsConfigDict(env_prefix="TACET_", frozen=True)

    kafka: str | None = None
    """Bootstrap servers, ``host:port`` separated by commas."""
    snmp_communities_file: Path | None = None
    """File of accepted SNMP communities, one a line, mode 0600."""
    session_timeout: float = Field(default=SESSION_TIMEOUT, ge=SHORTEST_SESSION, le=300.0)
    """Seconds of silence after which a worker's partitions go to another; half as long is a broker waited for."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False
    """One JSON object a line instead of text."""
