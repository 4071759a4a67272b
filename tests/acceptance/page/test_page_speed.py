"""The page's CPU work by the browser's trace. ``make bench`` prints it: figures of one machine and one run.

The figure is the CPU time of the page's main thread, so that other processes do not count. A figure beyond its goal is
marked and fails nothing: a faster or slower machine is no fault.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.page.browser import served, watched
from tests.acceptance.page.recorded import Scene, application

pytestmark = pytest.mark.bench
MOST_SCRIPTING = 8.0
"""Goal: milliseconds per frame while the user moves through 64 zones of 30 days."""
FIRST_PAINT = 1000.0
"""Goal: milliseconds until the first content is painted."""
SCRIPT = {"FunctionCall", "FireAnimationFrame", "EventDispatch", "RunMicrotasks", "EvaluateScript", "v8.callFunction"}


def traced(browser: Browser, page: Any, path: Path) -> Iterator[None]:
    browser.start_tracing(page=page, path=path, categories=["devtools.timeline", "v8", "blink.user_timing"])
    yield
    browser.stop_tracing()


def outermost(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the scripting events that lie within no other, in the order of time."""
    scripting = [e for e in events if e.get("ph") == "X" and e["name"] in SCRIPT and "tdur" in e]
    found: list[dict[str, Any]] = []
    for event in sorted(scripting, key=lambda e: (e["pid"], e["tid"], e["ts"], -e.get("dur", 0))):
        last = found[-1] if found else None
        inside = last is not None and (last["pid"], last["tid"]) == (event["pid"], event["tid"])
        if not (inside and last is not None and event["ts"] < last["ts"] + last["dur"]):
            found.append(event)
    return found


def by_frame(events: list[dict[str, Any]]) -> list[float]:
    """Return the milliseconds of scripting from each frame to the next, sorted, but where nothing is drawn."""
    scripting = outermost(events)
    starts = sorted(e["ts"] for e in events if e["name"] == "FireAnimationFrame")
    spent = [
        sum(e["tdur"] for e in scripting if begin <= e["ts"] < end) / 1000 for begin, end in itertools.pairwise(starts)
    ]
    return sorted(each for each in spent if each > 0.5)


def compare(figure: float, goal: float) -> str:
    """Return the figure in milliseconds beside its goal."""
    return f"{figure:.1f} ms (goal <= {goal:g} ms{', SHORT OF ITS GOAL' if figure > goal else ''})"


def test_moving_through_64_zones_of_30_days_is_measured(browser: Browser, tmp_path: Path) -> None:
    scene = Scene(zones_a_floor=16)
    zones = [zone["zone"] for zone in scene.counted()][:64]
    assert len(zones) == 64
    nodes = ",".join(f"zone:{zone}" for zone in zones)
    with served(application(scene)) as origin:
        seen = watched(browser, origin)
        page = seen.go(f"#/history?span=30d&nodes={nodes}")
        expect(page.locator(".heat .cell").first).to_be_attached(timeout=120_000)
        page.get_by_role("button", name="Zoom in").click()
        box = page.locator(".chart .u-over").bounding_box()
        assert box is not None
        y = box["y"] + 100
        page.mouse.move(box["x"] + 600, y)
        page.mouse.down()
        for _ in traced(browser, page, tmp_path / "trace.json"):
            for step in range(60):
                page.mouse.move(box["x"] + 600 - 5 * step, y)
        page.mouse.up()
        page.context.close()
    work = by_frame(orjson.loads((tmp_path / "trace.json").read_bytes())["traceEvents"])
    assert len(work) >= 20
    middle, late = work[len(work) // 2], work[int(len(work) * 0.95)]
    print(f"scripting a frame: median {middle:.1f} ms, 95 % {compare(late, MOST_SCRIPTING)} of {len(work)} frames")


def test_the_first_paint_is_measured(browser: Browser) -> None:
    with served(application(Scene())) as origin:
        page = watched(browser, origin).go()
        paints = page.evaluate("performance.getEntriesByType('paint').map(p => [p.name, p.startTime])")
        page.context.close()
    print(f"first contentful paint: {compare(dict(paints)['first-contentful-paint'], FIRST_PAINT)}")
