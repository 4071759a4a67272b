"""The ledger: one charge for each release, before publishing, in a hash chain; denials follow from it alone."""

from __future__ import annotations

import copy
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import islice
from typing import Any

import pytest

from stream.accounting.ledger import (
    GENESIS,
    BudgetView,
    ChargeEvent,
    Ledger,
    LedgerState,
    chain_hash,
    nano,
    refuse_other,
)
from stream.errors import AuditError, FinalityError
from stream.operators import scan
from stream.pipeline import Options, Pipeline
from stream.records import DAY, MINUTE, OccupancyWindow, Published
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy
from stream.schemas import AUDIT, parse_record, parse_time
from tests.support.hash_chain import verify_chain
from tests.support.small_building import (
    EVENING,
    SITE,
    Seen,
    access_point,
    account_of,
    audit_of,
    bodies,
    building,
    day_outputs,
    laboratory,
    mac,
    messages,
    outputs_of,
    people,
    run,
)

SEEN = people()


@cache
def day_entries() -> list[dict[str, Any]]:
    return audit_of(day_outputs())


@cache
def second_attempt() -> list[Published]:
    """What a second attempt publishes of the same day."""
    return outputs_of(building(), SEEN, attempt=2)


def counts_policy(mechanism: str, epsilon: str, budget: str, **more: Any) -> Policy:
    return building(
        releases=f"""
[[release]]
name = "r"
query = "count"
mechanism = "{mechanism}"
zones = {{ kind = "hall" }}
epsilon = {{ {epsilon} }}
daily_budget = {{ {budget} }}
""",
        **more,
    )


def windows(policy: Policy, counts: Sequence[tuple[int, ...]], first: int) -> list[OccupancyWindow]:
    tick = policy.site[SITE].tick
    return [OccupancyWindow(SITE, first + n * tick, (*row, 0, 0, 0), Fraction(1)) for n, row in enumerate(counts)]


def released(policy: Policy, items: list[OccupancyWindow], seed: int = 1) -> tuple[Any, Any, list[Published]]:
    stage = Pipeline(policy, SITE, laboratory(seed)).stages.release
    state, outputs = stage.initial(), []
    for item in items:
        state, made = stage.step(state, item)
        outputs += [out for out in made if isinstance(out, Published)]
    return stage, state, outputs


# --- charges ------------------------------------------------------------------------------------------


def test_every_record_has_one_entry_that_comes_before_it_and_no_entry_is_without_a_record() -> None:
    charged: Counter[str] = Counter()
    records = []
    for out in day_outputs():
        if out.topic == AUDIT:
            charged[out_id(out)] += 1
        elif ".private." in out.topic:
            records.append(out.id)
            assert charged[out.id] == 1
    assert set(charged.values()) == {1}
    assert sorted(charged) == sorted(records)
    assert len(records) == len(set(records)) > 600


def out_id(out: Published) -> str:
    [body] = bodies([out], AUDIT)
    return f"{body['release_id']}"


def test_what_is_no_whole_number_of_units_is_charged_as_the_next_one() -> None:
    assert [nano(Fraction(each)) for each in ("1", "1/3", "1e-9", "1e-10", "0")] == [10**9, 333333334, 1, 1, 0]


def test_an_entry_charges_what_its_record_says_in_whole_nano_epsilons() -> None:
    records = {body["release_id"]: body for body in bodies(day_outputs(), "private")}
    for entry in day_entries():
        body = records[entry["release_id"]]
        assert type(entry["nano"]) is int
        assert Fraction(entry["nano"], 10**9) == Fraction(body["spend"])
        assert entry["epsilon"] == body["epsilon"]
        same = ("audience", "release", "window_end", "policy_version", "laboratory", "site")
        assert {name: entry[name] for name in same} == {name: body[name] for name in same}
        assert (entry["outcome"] == "released") == (body["spend"] != "0")


def test_a_billionth_of_an_epsilon_is_charged_exactly() -> None:
    policy = counts_policy("laplace", 'board = "0.123456789"', 'board = "0.370370367"')
    _, _, outputs = released(policy, windows(policy, [(1, 2, 3)] * 4, 20_000 * DAY + 15 * MINUTE))
    assert [entry["nano"] for entry in audit_of(outputs)] == [123456789, 123456789, 123456789, 0]


def test_a_refusal_is_entered_and_charges_nothing() -> None:
    ledger = Ledger(SITE, "ledger1", bytes(32), "v", laboratory=True, keep=DAY)
    state, entry = ledger.enter(
        LedgerState(),
        ChargeEvent(
            release="r", audience="board", release_id="i", attempt=1, window_end=DAY, key_day=1,
            epsilon="1", nano=10**9, denial="budget",
        ),
        "c",
    )  # fmt: skip
    assert (parse_record(entry)["nano"], parse_record(entry)["outcome"]) == (0, "budget")
    assert (state.sequence, state.budgets) == (1, BudgetView())
    assert state.budgets.on_days(["r/board"], range(9)) == state.budgets.around(["r/board"], DAY, DAY) == 0


def test_the_chain_holds_and_is_signed() -> None:
    verify_chain(day_entries(), laboratory().audit)
    assert day_entries()[0]["previous"] == GENESIS
    assert [entry["sequence"] for entry in day_entries()] == list(range(len(day_entries())))
    assert {entry["ledger"] for entry in day_entries()} == {"ledger1"}


@pytest.mark.parametrize(
    "field", ["sequence", "previous", "ledger", "site", "release_id", "attempt", "audience", "release", "window_end",
              "epsilon", "nano", "outcome", "policy_version", "commitment", "laboratory"],
)  # fmt: skip
def test_any_change_of_an_entry_is_found(field: str) -> None:
    entries = copy.deepcopy(day_entries()[:10])
    old = entries[4][field]
    entries[4][field] = not old if isinstance(old, bool) else old + 1 if isinstance(old, int) else old + "0"
    place = "site dbh0: entry 0" if field == "site" else "site dbh: entry 4"
    with pytest.raises(AuditError, match=place):
        verify_chain(entries)


def made_to_fit(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries whose hashes fit what they say now, as one without the audit key can make them."""
    return [entry | {"hash": chain_hash(entry)} for entry in entries]


def test_an_entry_that_fits_itself_but_names_another_before_it_is_found() -> None:
    first, second = day_entries()[:2]
    with pytest.raises(AuditError, match="entry 1 must be there and follow"):
        verify_chain([first, *made_to_fit([second | {"previous": "0" * 64}])])


def test_entries_linked_over_one_that_was_taken_out_are_found() -> None:
    first, _, third = day_entries()[:3]
    with pytest.raises(AuditError, match="entry 1 must be there"):
        verify_chain([first, *made_to_fit([third | {"previous": first["hash"]}])])


def test_entries_taken_out_put_in_swapped_or_made_up_are_found() -> None:
    for wrong in (
        day_entries()[1:5],
        day_entries()[:2] + day_entries()[3:6],
        [day_entries()[0], day_entries()[2], day_entries()[1]],
        day_entries()[:2] * 2,
    ):
        with pytest.raises(AuditError, match="must be there and follow"):
            verify_chain(wrong)
    forged = copy.deepcopy(day_entries()[:3])
    forged[2]["nano"] = 1
    forged[2]["hash"] = chain_hash(forged[2])
    verify_chain(forged)
    with pytest.raises(AuditError, match="site dbh: entry 2 must be signed"):
        verify_chain(forged, laboratory().audit)


def test_a_commitment_is_keyed_by_its_day_and_no_digest_of_the_counts() -> None:
    """Equal counts in two windows, and one window under two keys, have unrelated commitments."""
    policy = counts_policy("laplace", 'board = "1"', 'board = "100"')
    items = windows(policy, [(1, 2, 3)] * 3, 20_000 * DAY + 15 * MINUTE)
    one = [entry["commitment"] for entry in audit_of(released(policy, items)[2])]
    other = [entry["commitment"] for entry in audit_of(released(policy, items, seed=2)[2])]
    others = windows(policy, [(1, 2, 4)] * 3, items[0].window_end)
    changed = [entry["commitment"] for entry in audit_of(released(policy, others)[2])]
    assert len({*one, *other, *changed}) == 9
    assert all(re.fullmatch("[0-9a-f]{32}", commitment) for commitment in one)


def test_commitments_do_not_tell_whether_a_second_attempt_read_the_same() -> None:
    policy = counts_policy("laplace", 'board = "1"', 'board = "100"')
    [window] = windows(policy, [(1, 2, 3)], 20_000 * DAY + 15 * MINUTE)
    made = set()
    for attempt in (1, 2, 3):
        _, outputs = scan(ReleaseStage(policy, SITE, laboratory(), attempt), [window])
        made |= {entry["commitment"] for entry in audit_of(outputs)}
    assert len(made) == 3


def test_the_same_log_gives_the_same_entries_and_nothing_is_charged_twice() -> None:
    again = audit_of(run(Pipeline(building(), SITE, laboratory()), islice(messages(SEEN, building()), 200)))
    assert len(again) > 300
    assert again == day_entries()[: len(again)]
    policy = counts_policy("laplace", 'board = "1"', 'board = "100"')
    items = windows(policy, [(1, 2, 3)] * 3, 20_000 * DAY + 15 * MINUTE)
    assert audit_of(released(policy, items + items)[2]) == audit_of(released(policy, items)[2])


def test_an_entry_that_would_come_out_differently_is_refused() -> None:
    refuse_other(b'{"sequence":3}', b'{"sequence":3}', SITE)
    with pytest.raises(FinalityError, match=r"entry 3 was published and would now differ; .* only a new ledger can"):
        refuse_other(b'{"sequence":3}', b'{"sequence":3,"nano":1}', SITE)


# --- a second attempt -----------------------------------------------------------------------------------


def test_a_second_attempt_is_charged_again_under_its_own_ids_with_fresh_noise() -> None:
    second = second_attempt()
    entries = audit_of(second)
    counts = [entry for entry in day_entries() if entry["release"] != "office-day"]
    assert {entry["attempt"] for entry in entries} == {2}
    assert [entry["release_id"] for entry in entries] == [f"{entry['release_id']}#2" for entry in counts]
    assert [entry["nano"] for entry in entries] == [entry["nano"] for entry in counts]
    first_values = [body["values"] for body in bodies(day_outputs(), "private") if body["release"] == "plain"]
    second_values = [body["values"] for body in bodies(second, "private") if body["release"] == "plain"]
    pairs = [(a, b) for a, b in zip(first_values, second_values, strict=True) if a is not None]
    assert sum(a == b for a, b in pairs) < len(pairs) / 20
    assert all(body["release_id"].endswith("#2") for body in bodies(second, "private"))


def test_a_second_attempt_asks_no_attributes() -> None:
    """It might hold another reading of the day, for which the permanent coin was not tossed."""
    assert any("attribute" in body for body in bodies(day_outputs(), "private"))
    second = bodies(second_attempt(), "private")
    assert second
    assert not any("attribute" in body for body in second)


# --- refusals ----------------------------------------------------------------------------------------


def test_budgets_run_on_utc_days_of_the_windows_start() -> None:
    """11 windows a day are paid; the window that ends at midnight belongs to the day it began in."""
    policy = counts_policy("laplace", 'board = "1"', 'board = "11"')
    first = 20_000 * DAY - 15 * 15 * MINUTE
    _, _, outputs = released(policy, windows(policy, [(1, 2, 3)] * 40, first))
    paid = [body["released"] for body in bodies(outputs, "private")]
    ends = [parse_time(body["window_end"]) for body in bodies(outputs, "private")]
    assert ends[15] == 20_000 * DAY
    assert paid == [True] * 11 + [False] * 5 + [True] * 11 + [False] * 13


def test_a_refusal_has_the_shape_of_a_release_and_comes_at_the_same_time() -> None:
    records = [
        body for body in bodies(day_outputs(), "private") if body["release"] == "plain" and body["audience"] == "board"
    ]
    refused = [body for body in records if not body["released"]]
    paid = [body for body in records if body["released"]]
    assert len(refused) > 20
    assert {tuple(body) for body in records} == {tuple(paid[0])}
    for body in refused:
        assert (body["reason"], body["spend"], body["epsilon"]) == ("budget", "0", "0.25")
        nulls = ("values", "levels", "half_width_95", "levels_half_width_95")
        assert [body[name] for name in nulls] == [None] * 4
        assert body["noise_scale"] == paid[0]["noise_scale"]
    times = [out.time for out in day_outputs() if out.topic == "tacet.private.board.plain.v1"]
    assert times == [out.time for out in day_outputs() if out.topic == "tacet.private.facilities.plain.v1"]
    report = [record["refused"] for record in account_of(day_outputs()) if record["refused"]]
    assert len(report) == len(refused)


def test_refusals_depend_on_ledger_and_policy_only() -> None:
    nobody = [Seen(EVENING + 1_000, mac(0), access_point("a")), SEEN[-1]]
    crowd = people(9, devices=60)
    first, last = SEEN[0], SEEN[-1]
    others = nobody, [first, *[row for row in crowd if first.time < row.time < last.time], last]
    outcomes = set()
    for entries in (day_entries(), *(audit_of(outputs_of(building(), seen)) for seen in others)):
        outcomes.add(tuple((entry["release_id"], entry["nano"], entry["outcome"]) for entry in entries))
    assert len(outcomes) == 1


def test_a_refusal_closes_the_open_groups_and_the_refused_count_enters_none() -> None:
    policy = counts_policy("pegasus", 'board = "1"', 'board = "3"', tick="1h")
    first = 20_000 * DAY + 60 * MINUTE
    held = [
        released(policy, windows(policy, [(5, 5, 5)] * 3, first), seed)[1].operator_states["r/1"] for seed in range(9)
    ]
    assert sum(int(groups.size.sum()) for groups in held) > 20, "before the refusal groups are open"
    for seed in range(9):
        _, state, outputs = released(policy, windows(policy, [(5, 5, 5)] * 4, first), seed)
        assert [body["released"] for body in bodies(outputs, "private")] == [True] * 3 + [False]
        assert state.operator_states["r/1"].size.tolist() == [0, 0, 0]
        assert not state.operator_states["r/1"].counts.any()


def test_values_after_a_refusal_do_not_depend_on_what_was_refused() -> None:
    policy = counts_policy("pegasus", 'board = "1"', 'board = "3"', tick="1h")
    first = 20_000 * DAY + 60 * MINUTE
    quiet = [(5, 5, 5)] * 60
    busy = [row if n % 24 < 3 else (900 + n, 7, 800) for n, row in enumerate(quiet)]
    made = [bodies(released(policy, windows(policy, counts, first))[2], "private") for counts in (quiet, busy)]
    assert made[0] == made[1]
    assert Counter(body["released"] for body in made[0]) == {True: 9, False: 51}


def test_groups_close_at_the_end_of_the_key_day() -> None:
    policy = counts_policy("pegasus", 'board = "9"', 'board = "900"', tick="1h")
    first = 20_000 * DAY - 5 * 60 * MINUTE
    assert windows(policy, [(5, 5, 5)] * 6, first)[-1].window_end == 20_000 * DAY, "this window began before midnight"
    longest = {}
    for n in (6, 7):
        states = [released(policy, windows(policy, [(5, 5, 5)] * n, first), seed)[1] for seed in range(20)]
        longest[n] = max(state.operator_states["r/9"].size.max() for state in states)
    assert longest[6] > 3
    assert longest[7] == 1, "the first window of the next day opens new groups"


def test_audiences_of_equal_epsilon_get_a_window_together_or_not_at_all() -> None:
    """They share groups: what one of them got later would hold the window that the other had not paid for."""
    policy = counts_policy("pegasus", 'board = "1", public = "1", facilities = "2"', 'board = "3"', tick="1h")
    _, _, outputs = released(policy, windows(policy, [(5, 5, 5)] * 5, 20_000 * DAY + 60 * MINUTE))
    by_audience = defaultdict(list)
    for body in bodies(outputs, "private"):
        by_audience[body["audience"]].append(body["released"])
    assert by_audience["board"] == by_audience["public"] == [True] * 3 + [False] * 2
    assert by_audience["facilities"] == [True] * 5


def test_the_ledger_goes_on_over_its_byte_form() -> None:
    policy = counts_policy("laplace", 'board = "1"', 'board = "3"', tick="1h")
    items = windows(policy, [(1, 2, 3)] * 50, 20_000 * DAY - 60 * MINUTE)
    stage, state, wanted = released(policy, items)
    again, outputs = stage.initial(), []
    for item in items:
        again, made = stage.step(stage.decode(stage.encode(again)), item)
        outputs += [out for out in made if isinstance(out, Published)]
    assert outputs == wanted
    assert stage.encode(again) == stage.encode(state)
    assert len(stage.encode(state)) < 1_000, "books of days that are over are let go"


def test_pipelines_of_several_sites_have_chains_of_their_own() -> None:
    policy = building(sites=(SITE, "dbh1"))
    for site in policy.site:
        made = Pipeline(policy, site, laboratory(), Options())
        assert made.initial().release.ledger.head == GENESIS
