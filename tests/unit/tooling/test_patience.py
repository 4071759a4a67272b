"""How tests wait, and that no property test has a deadline."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings

from tests.support import patience
from tests.support.patience import PATIENCE, until, wait_until, waiting_for, within_patience


def test_no_example_of_a_property_may_be_too_slow() -> None:
    assert settings().deadline is None
    assert settings(max_examples=3).deadline is None


def test_a_wait_is_minutes_long_unless_many_tests_are_meant_to_fail() -> None:
    assert PATIENCE >= 60


async def test_what_comes_ends_a_wait() -> None:
    seen: list[int] = []
    asyncio.get_running_loop().call_later(0.02, seen.append, 1)
    await until(lambda: seen)
    wait_until(lambda: seen)
    assert await within_patience(asyncio.sleep(0, "it"), "a value") == "it"


async def test_who_waits_in_vain_is_told_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE", 0.01)
    never, seen = asyncio.Event(), list[int]()
    with pytest.raises(AssertionError, match=r"^waited 0 s for .*seen == \[1\]"):
        await until(lambda: seen == [1])
    with pytest.raises(AssertionError, match=r"^waited 0 s for rain"):
        await until(never.is_set, "rain")
    with pytest.raises(AssertionError, match=r"^waited 0 s for rain"):
        wait_until(never.is_set, "rain")
    with pytest.raises(AssertionError, match=r"^waited 0 s for rain"):
        await within_patience(never.wait(), "rain")
    with pytest.raises(AssertionError, match=r"^waited 0 s for rain"):
        async with waiting_for("rain"):
            await never.wait()


async def test_an_error_within_a_wait_comes_out_as_it_is() -> None:
    with pytest.raises(TimeoutError, match="of its own"):
        async with waiting_for("rain"):
            raise TimeoutError("of its own")
