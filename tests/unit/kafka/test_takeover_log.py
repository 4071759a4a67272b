"""Ordinary takeovers are logged as information; other library errors stay errors."""

from __future__ import annotations

import logging

import pytest
from aiokafka.errors import CorruptRecordException, InvalidTxnState, ProducerFenced

import connectors.storage.kafka.transactions  # noqa: F401 - whoever writes transactions has the filter
from connectors.storage.kafka import aiokafka_errors

SENDER, GROUP = "aiokafka.producer.sender", "aiokafka.consumer.group_coordinator"


@pytest.mark.parametrize(
    ("name", "text", "argument", "error"),
    [
        (SENDER, "Unexpected error in sender routine", "", InvalidTxnState()),
        (SENDER, "Could not end transaction due to unexpected error: %s", ProducerFenced, None),
        ("asyncio", "Task exception was never retrieved", "", ProducerFenced()),
        (GROUP, "Heartbeat failed for group %s because it is rebalancing", "group", None),
        (GROUP, "Heartbeat session expired - marking coordinator dead", "", None),
    ],
)
def test_a_takeover_is_information(
    caplog: pytest.LogCaptureFixture, name: str, text: str, argument: object, error: Exception | None
) -> None:
    caplog.set_level("INFO")
    logging.getLogger(name).error(text, *([argument] if argument else []), exc_info=error)
    output = [(line.name, line.levelname, line.getMessage()) for line in caplog.records]
    assert output == [(aiokafka_errors.__name__, "INFO", "partitions are being reassigned")]


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        (SENDER, "Unexpected error in sender routine", CorruptRecordException()),
        ("asyncio", "Task exception was never retrieved", ValueError()),
        (GROUP, "Unexpected error in coordinator routine", None),
    ],
)
def test_other_errors_stay_errors(
    caplog: pytest.LogCaptureFixture, name: str, text: str, error: Exception | None
) -> None:
    caplog.set_level("INFO")
    logging.getLogger(name).error(text, exc_info=error)
    assert [(line.name, line.levelname) for line in caplog.records] == [(name, "ERROR")]
