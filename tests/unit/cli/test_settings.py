"""Settings from the environment: which values are refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from stream.settings import Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TELEGRAF_GROUP", ""), ("TELEGRAF_GROUP", "two words"), ("TELEGRAF_GROUP", "g" * 201),
        ("SESSION_TIMEOUT", "5.9"), ("SESSION_TIMEOUT", "300.1"), ("OPEN_TIMEOUT", "59"), ("OPEN_TIMEOUT", "86401"),
        ("KAFKA_SECURITY_PROTOCOL", "TLS"), ("KAFKA_SASL_MECHANISM", "GSSAPI"), ("LOG_LEVEL", "trace"),
    ],
)  # fmt: skip
def test_a_value_that_no_program_could_use_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TACET_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_values_at_the_limits_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TELEGRAF_GROUP": "g" * 200, "SESSION_TIMEOUT": "6", "OPEN_TIMEOUT": "86400"}.items():
        monkeypatch.setenv(f"TACET_{name}", value)
    settings = Settings()
    assert (settings.telegraf_group, settings.session_timeout, settings.open_timeout) == ("g" * 200, 6.0, 86400.0)
