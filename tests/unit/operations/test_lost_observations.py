"""``recover`` on observations that expired before they were read, and the price of continuing without them."""

from __future__ import annotations

import pytest

from connectors.operations.recovery import cluster
from connectors.operations.recovery.cluster import price_of_loss, remedies_after_loss
from connectors.operations.recovery.obstacles import CLUSTER_RETIRE
from stream.encoding import encode_message
from stream.engine.cluster_state import ClusterState
from stream.engine.snapshot import SnapshotHead, seal_snapshot
from stream.records import MINUTE, Heartbeat, Micros
from stream.release.stage import MECHANISM_VERSION
from stream.schemas import rfc3339
from stream.sensing.state import SensingStatus

NOON: Micros = 1_772_452_800_000_000
TICK = 5 * MINUTE


def at(last_window: Micros | None) -> SensingStatus:
    return SensingStatus(last_window, last_window, False, last_window or 0)


def beat(site: str, watermark: Micros) -> bytes:
    return encode_message(Heartbeat(site, "10.0.0.1", 1, watermark, 0))


async def price(monkeypatch: pytest.MonkeyPatch, *messages: bytes, last_window: Micros | None = NOON) -> str:
    async def first(*_: object) -> list[bytes]:
        return list(messages)

    monkeypatch.setattr(cluster, "read_first", first)
    return await price_of_loss("servers", 0, {"east": at(last_window)}, {"east": TICK})


@pytest.mark.parametrize(
    ("watermark", "last", "windows"),
    [(NOON + 12 * TICK, NOON + 12 * TICK, 12), (NOON + 12 * TICK - 1, NOON + 12 * TICK, 12),
     (NOON + 12 * TICK + 1, NOON + 13 * TICK, 13)],
)  # fmt: skip
async def test_the_price_names_the_windows_up_to_the_one_of_the_first_heartbeat_that_is_left(
    monkeypatch: pytest.MonkeyPatch, watermark: Micros, last: Micros, windows: int
) -> None:
    others = (b"{", b'{"v":2}', beat("west", NOON + TICK))
    output = await price(monkeypatch, *others, beat("east", watermark), beat("east", watermark + 9 * TICK))
    named = f"the {windows} windows that end from {rfc3339(NOON + TICK)} to {rfc3339(last)} have coverage 0"
    assert named in output
    assert "and are charged" in output


async def test_without_a_heartbeat_it_names_the_first_window_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    output = await price(monkeypatch, beat("west", NOON))
    assert f"from the one that ends at {rfc3339(NOON + TICK)} up to the next heartbeat have coverage 0" in output


async def test_where_no_window_was_begun_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no window has been begun" in await price(monkeypatch, beat("east", NOON), last_window=None)
    assert "of site east no whole window" in await price(monkeypatch, beat("east", NOON))


@pytest.mark.parametrize(
    ("position", "said"),
    [(16, "they begin at 17: 1 messages expired"), (17, None), (20, None), (21, "they end at 20")],
)  # fmt: skip
async def test_a_position_that_the_log_no_longer_holds_is_found(
    monkeypatch: pytest.MonkeyPatch, position: int, said: str | None
) -> None:
    async def begin(*_: object) -> dict[int, int]:
        return {0: 17}

    monkeypatch.setattr(cluster, "begin_offsets", begin)
    snapshot = seal_snapshot(SnapshotHead(position, 0, "policy", MECHANISM_VERSION, "key", None), {})
    found = await cluster._loss("servers", 0, snapshot, 20, cluster._Given(None, [], ClusterState()))
    assert found is None if said is None else said in (found or "")


def test_a_loss_is_accepted_for_its_price_and_the_key_is_retired_where_entries_were_made_from_what_is_lost() -> None:
    (accept,) = remedies_after_loss(0, "the price")
    assert ("--accept-loss" in accept.do, accept.price) == (True, "the price")
    (retire,) = remedies_after_loss(3, "the price")
    assert retire.do.startswith("3 ledger entries")
    assert "'tacet key retire --kafka'" in retire.do
    assert retire.price == CLUSTER_RETIRE.price
