"""``sample`` and ``ba`` over a change of policy: which publication continues, and when the next may begin."""

import random
from fractions import Fraction
from itertools import pairwise
from typing import Any

import orjson
import pytest

from stream.accounting.costs import readers_of
from stream.errors import DataError
from stream.operators import scan
from stream.pipeline import Pipeline
from stream.policy.counts import CountRelease
from stream.records import DAY, MINUTE, OccupancyWindow, Published, WindowCharges
from stream.release.account_stage import account_stage, rebuild_account
from stream.release.backfill import BackfillStage
from stream.release.stage import ReleaseStage
from stream.release.state import ReleaseState
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, LEAKAGE
from tests.support.small_building import (
    ACCESS_POINTS,
    SITE,
    Seen,
    access_point,
    account_of,
    laboratory,
    mac,
    messages,
    policy_text,
)

TICK, START, KEYS = 15 * MINUTE, 20_000 * DAY, laboratory()
COUNTS = {"a": 51, "b": 7, "c": 30, "d": 0, "x": 0, "y": 0}


def sample(
    audience: str = "facilities", *, name: str = "r", zones: str = '["a"]', w: int = 4, epsilon: str = "100",
    mechanism: str = "sample", tick: str = "15min",
) -> Policy:  # fmt: skip
    release = f"""
[[release]]
name = "{name}"
query = "count"
mechanism = "{mechanism}"
w = {w}
zones = {{ ids = {zones} }}
epsilon = {{ {audience} = "{epsilon}" }}
"""
    return load_policy(policy_text(release, tick=tick))


SAMPLED = """
[[release]]
name = "r"
query = "count"
mechanism = "sample"
w = 4
zones = { ids = ["a"] }
epsilon = { facilities = "100" }
"""


def windows(first: int, n: int, counts: dict[str, int] = COUNTS) -> list[OccupancyWindow]:
    row = tuple(counts[zone] for zone in ACCESS_POINTS)
    return [OccupancyWindow(SITE, START + i * TICK, row, Fraction(1)) for i in range(first, first + n)]


def after(
    old: Policy, new: Policy, n: int, *, before: int = 2, counts: dict[str, int] = COUNTS
) -> list[dict[str, Any]]:
    """Return the counts that a new policy releases after ``before`` windows under the old one."""
    stage, later = ReleaseStage(old, SITE, KEYS), ReleaseStage(new, SITE, KEYS)
    state, _ = scan(stage, windows(0, before))
    _, outputs = scan(later, windows(before, n, counts), later.migrate(stage.encode(state), {}))
    return [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and o.topic != AUDIT]


def test_a_new_audience_does_not_inherit_the_running_publication() -> None:
    found = after(sample("facilities"), sample("public"), 6)
    assert [record["reason"] for record in found] == ["waiting"] * 3 + [None] * 3
    assert [record["spend"] for record in found[:3]] == ["0"] * 3
    assert all(record["values"] is None for record in found[:3])


@pytest.mark.parametrize("zones", ['["b"]', '["a", "b"]'])
def test_what_was_published_of_one_zone_is_never_published_of_another(zones: Any) -> None:
    found = after(sample(zones='["a"]'), sample(zones=zones), 6)
    assert [record["released"] for record in found] == [False] * 3 + [True] * 3
    assert {record["values"]["b"] for record in found[3:]} == {7}


@pytest.mark.parametrize(
    "changed", [{"w": 5}, {"epsilon": "99"}, {"mechanism": "ba"}, {"zones": '["b"]'}, {"audience": "public"}]
)
@pytest.mark.parametrize("name", ["r", "renamed"])
def test_a_publication_that_belongs_to_something_else_ends_and_the_next_begins_w_windows_later(
    changed: Any, name: Any
) -> None:
    found = after(sample(), sample(**changed, name=name), 5, before=1)
    assert [record["released"] for record in found].index(True) == changed.get("w", 4) - 1


def test_the_longer_w_of_both_policies_is_waited_for() -> None:
    found = after(sample(w=9), sample(w=2), 10, before=1)
    assert [record["released"] for record in found] == [False] * 8 + [True] * 2


@pytest.mark.parametrize("mechanism", ["sample", "ba"])
def test_a_renamed_release_goes_on_with_its_publication(mechanism: Any) -> None:
    new = {**COUNTS, "a": 20}
    found = after(sample(mechanism=mechanism), sample(mechanism=mechanism, name="other"), 1, counts=new)
    kept = after(sample(mechanism=mechanism), sample(mechanism=mechanism), 1, counts=new)
    assert [record["released"] for record in found] == [True]
    if mechanism == "sample":
        assert found[0]["values"] == kept[0]["values"] == {"a": 51}


def test_a_release_of_this_kind_that_is_new_to_a_site_begins_after_w_windows() -> None:
    laplace = load_policy(policy_text(tick="15min"))
    found = [record for record in after(laplace, sample(), 5) if record["release"] == "r"]
    assert [record["released"] for record in found] == [False] * 3 + [True] * 2
    fresh = ReleaseStage(sample(), SITE, KEYS)
    _, outputs = scan(fresh, windows(0, 1))
    assert isinstance(outputs[1], Published)
    assert orjson.loads(outputs[1].value)["released"], "a site that has released nothing has nothing to wait for"


def test_a_state_says_whose_publication_it_carries() -> None:
    stage, other = ReleaseStage(sample(), SITE, KEYS), ReleaseStage(sample(zones='["b"]'), SITE, KEYS)
    state, _ = scan(stage, windows(0, 1))
    with pytest.raises(DataError, match="must belong to this policy's releases"):
        other.decode(stage.encode(state))


def changes(rng: random.Random) -> Policy:
    return sample(
        rng.choice(("facilities", "public")), name=rng.choice(("r", "s")), zones=rng.choice(('["a"]', '["b"]')),
        w=rng.choice((2, 4)), epsilon="100", mechanism="sample",
    )  # fmt: skip


def test_no_w_windows_hold_two_publications_and_the_account_says_at_least_what_was_spent() -> None:
    """Random policies one after another; the truth is read off the values, which move by 1 with every window.

    ε = 100: Pr[a noise other than 0] < 1e-42 per draw, so a false alarm is out of the question.
    """
    rng = random.Random(3)
    for _ in range(15):
        entries, published, policies, account = [], [], [], None
        stood: bytes | None = None
        last: dict[str, Any] = {}
        at = 0
        for _ in range(6):
            made, n = changes(rng), rng.randrange(1, 9)
            policies.append(made)
            stage = ReleaseStage(made, SITE, KEYS)
            state = stage.initial() if stood is None else stage.migrate(stood, {})
            books = account_stage(made, SITE, laboratory=True)
            for i in range(at, at + n):
                [window] = windows(i, 1, {**COUNTS, "a": i + 1, "b": 1000 + i})
                state, outputs = stage.step(state, window)
                for out in outputs:
                    if isinstance(out, WindowCharges):
                        account, records = books.step(account or books.initial(), out)
                        last = orjson.loads(records[0].value)
                    elif out.topic == AUDIT:
                        entries.append(orjson.loads(out.value))
                    elif (body := orjson.loads(out.value))["released"]:
                        [(zone, value)] = body["values"].items()
                        published += [i] if value == {"a": i + 1, "b": 1000 + i}[zone] else []
            at += n
            stood = stage.encode(state)
            account = account and books.decode(books.encode(account))
        longest = {}
        for i, made in zip(published, policies, strict=False):
            [release] = made.release
            assert isinstance(release, CountRelease)
            longest[i] = release.w
        assert all(later - earlier >= 2 for earlier, later in pairwise(published)), (published, longest)
        truth = 100 * len(published)
        assert Fraction(last["coalition"]["device_total"]) >= truth
        _, rebuilt = rebuild_account(policies, SITE, entries, {}, readers_of(["facilities", "public"]))
        report = [orjson.loads(record.value) for record in rebuilt if record.topic == LEAKAGE]
        assert report[-1]["coalition"]["device_total"] == last["coalition"]["device_total"]


def test_what_begins_anew_is_paid_anew_by_the_day_and_in_all() -> None:
    """One publication before the change and one after it, on one day: 1 of w windows paid each time, never 2 of w."""
    old, new = Pipeline(sample(), SITE, KEYS), Pipeline(sample(zones='["b"]'), SITE, KEYS)
    noon = START + DAY // 2
    seen = [Seen(noon + i * TICK - MINUTE, mac(1), access_point("a")) for i in range(12)]
    log, states = list(messages(seen, sample())), old.initial()
    records: list[Any] = []
    for item in log:
        if len(account_of(records)) == 1 and old is not new:
            states, old = new.migrate(old.encode(states)), new
        states, made = old.step(states, item)
        records += made
    of = [record["audiences"]["facilities"] for record in account_of(records)]
    assert [units["device_total"] for units in of[:6]] == ["100"] * 4 + ["200"] * 2
    assert [units["device_day"] for units in of[:6]] == ["100"] * 4 + ["200"] * 2


def test_late_entries_of_another_policy_between_live_ones_do_not_break_off_what_goes_on() -> None:
    """Two policies with the same sample; what the later one releases late lies between the windows of the first."""
    plain = '[[release]]\nname = "p"\nquery = "count"\nmechanism = "laplace"\nepsilon = { public = "1" }\n'
    first, second = sample(), load_policy(policy_text(tick="15min", releases=plain) + SAMPLED)
    stage, state = ReleaseStage(first, SITE, KEYS), ReleaseStage(first, SITE, KEYS).initial()
    state, live = scan(stage, windows(40, 8), state)
    late = BackfillStage(second, SITE, KEYS)
    state, aside = ReleaseStage(second, SITE, KEYS).migrate(stage.encode(state), {}), ReleaseState()
    between = [out for window in windows(40, 8) for out in late.release_late(state, window, aside)]
    entries = [
        orjson.loads(out.value) for out in [*live, *between] if isinstance(out, Published) and out.topic == AUDIT
    ]
    _, records = rebuild_account([first, second], SITE, entries, {})
    last = orjson.loads(records[-1].value)["audiences"]
    assert {entry["policy_version"] for entry in entries} == {first.version, second.version}
    assert (last["facilities"]["device_total"], last["public"]["device_total"]) == ("200", "8")
