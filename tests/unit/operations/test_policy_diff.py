"""``policy diff``: each kind of difference, and that a site then behaves as it says."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from connectors.cli.main import tacet
from connectors.operations.policy.diff import Difference, _compared, difference
from stream.pipeline import Pipeline
from stream.policy.mechanisms import MECHANISMS, names_where
from stream.records import Heartbeat, Published
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time
from tests.support.day_policies import change_release, day_release, day_site, visit_site
from tests.support.forecasts import TABLE, with_forecast
from tests.support.people_models import HALLS
from tests.support.small_building import ATTRIBUTES, SITE, laboratory, messages, people, policy_text

PLAIN = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
zones = { kind = "hall" }
epsilon = { board = "0.5" }
daily_budget = { board = "48" }
"""
BA = """
[[release]]
name = "carried"
query = "count"
mechanism = "ba"
w = 8
zones = { kind = "hall" }
epsilon = { board = "1" }
"""


def between(old: str, new: str) -> Difference:
    return difference(load_policy(old), load_policy(new))


def changed(old: str = PLAIN, new: str = PLAIN, **site: Any) -> Difference:
    """Return the difference of two releases; ``site`` are changes of the new policy beside them."""
    return between(policy_text(old), policy_text(new, **site))


def said(found: Difference, kind: str) -> dict[str, str]:
    """Return where -> text of what is said of a kind; of several of one place the last."""
    return {change.where: change.text for change in found.changes if change.kind == kind}


# --- prices -------------------------------------------------------------------------------------------


def test_what_means_the_same_changes_nothing() -> None:
    found = changed(PLAIN, "# a comment\n" + PLAIN)
    assert (found.changes, found.loses_state, found.old) == ((), False, found.new)


def test_a_budget_bounds_what_a_day_is_said_to_cost() -> None:
    """Windows at 0.5 and a daily budget of 1: two of the day, and two beside it that its observations reach."""
    found = changed(PLAIN, PLAIN.replace('"48"', '"1"'))
    texts = [change.text for change in found.changes if change.where == f"{SITE}/plain for board"]
    assert texts[0] == "one device, one day costs epsilon 2 instead of 49"


def test_a_computed_price_that_differs_in_the_third_digit_is_the_same() -> None:
    assert _compared("w", "it", (6.871, 6.874)) == []
    assert _compared("w", "it", (6.87, 7.0)) != []
    assert _compared("w", "it", (6.871, 6.874), stated=True) != []
    assert _compared("w", "it", (Fraction("6.871"), Fraction("6.874"))) != []


def test_an_epsilon_that_is_stated_is_compared_to_its_last_digit() -> None:
    stored = day_release(mechanism="plain")
    found = between(*(policy_text(each, site=day_site()) for each in (stored, stored.replace('"2"', '"2.002"'))))
    assert "dearer" in {change.kind for change in found.changes}


def test_where_a_day_is_paid_for_a_part_of_it_is_compared_and_no_tick() -> None:
    texts = [policy_text(change_release(), site=visit_site(visits=visits)) for visits in (4, 2)]
    found = {change.text for change in between(*texts).changes if change.kind == "cheaper"}
    assert "any part of one device's day, at delta 1e-06, costs epsilon 3.74852 instead of 3.83491" in found
    assert not any("at one tick" in text for text in found)


def test_a_smaller_epsilon_is_cheaper_in_every_unit_for_every_reader() -> None:
    found = changed(PLAIN, PLAIN.replace('"0.5"', '"0.25"'))
    texts = [change.text for change in found.changes if change.where == f"{SITE}/plain for board"]
    assert texts[0] == "one device at one tick costs epsilon 0.25 instead of 0.5"
    assert {change.kind for change in found.changes} == {"cheaper"}
    assert {change.where for change in found.changes} == {f"{SITE}/plain for board", f"{SITE}/plain for all"}
    assert not found.loses_state


def test_a_larger_epsilon_and_a_new_audience_are_dearer() -> None:
    found = changed(PLAIN, PLAIN.replace('{ board = "0.5" }', '{ board = "1", public = "2" }'))
    dearer = said(found, "dearer")
    assert set(dearer) == {f"{SITE}/plain for {reader}" for reader in ("board", "public", "all")}
    assert dearer[f"{SITE}/plain for public"].endswith(" now")


def test_a_release_that_ends_is_cheaper_and_says_to_whom_it_ends() -> None:
    found = changed(PLAIN + PLAIN.replace('"plain"', '"second"'), PLAIN)
    assert f"{SITE}/second for board" in said(found, "cheaper")
    assert said(found, "otherwise")[f"{SITE}/second"].startswith("no longer released to board")


RENAMED = (
    "is 'plain' under another name, at the same price: restarts as a new release, on its own topics, and "
    "with full budgets in addition to what 'plain' has spent"
)


def test_a_release_that_has_another_name_alone_is_no_change_of_price_and_begins_anew() -> None:
    found = changed(PLAIN, PLAIN.replace('"plain"', '"simple"'))
    assert not said(found, "cheaper")
    assert not said(found, "dearer")
    assert said(found, "anew") == {"simple": RENAMED}
    assert f"{SITE}/plain" in said(found, "otherwise")
    assert found.loses_state


def test_of_one_that_has_another_price_as_well_nothing_is_taken_for_a_rename() -> None:
    found = changed(PLAIN, PLAIN.replace('"plain"', '"simple"').replace('"0.5"', '"0.4"'))
    assert f"{SITE}/plain for board" in said(found, "cheaper")
    assert f"{SITE}/simple for board" in said(found, "dearer")
    assert "simple" not in said(found, "anew")


def test_what_else_changes_is_told_of_it_under_its_new_name() -> None:
    """Here a second release is new: all of them together are dearer, and no other is."""
    found = changed(PLAIN, PLAIN.replace('"plain"', '"simple"') + PLAIN.replace('"plain"', '"second"'))
    assert said(found, "anew") == {"simple": RENAMED}
    assert {where.split(" for ")[0] for where in said(found, "dearer")} == {f"{SITE}/second"}
    assert not said(found, "cheaper")


def test_a_stream_that_decides_on_renamed_counts_is_the_same_and_may_have_another_name_too() -> None:
    free = """
[[release]]
name = "full"
query = "threshold"
threshold = 9
zones = { kind = "hall" }
counts = "plain"
audience = "board"
"""
    found = changed(PLAIN + free, (PLAIN + free).replace('"plain"', '"simple"').replace('"full"', '"crowded"'))
    assert not said(found, "cheaper")
    assert not said(found, "dearer")
    assert set(said(found, "anew")) == {"simple", "crowded"}
    assert "budgets" not in said(found, "anew")["crowded"], "it has none"


def test_one_that_carries_a_publication_goes_on_with_it_under_its_new_name() -> None:
    found = changed(BA, BA.replace('"carried"', '"renamed"'))
    assert [change.kind for change in found.changes] == ["otherwise", "otherwise"]
    assert said(found, "otherwise")["renamed"] == (
        "is 'carried' under another name, at the same price: continues its publications, on its own topics"
    )


def test_attributes_that_have_another_name_are_no_change_of_price() -> None:
    found = changed(ATTRIBUTES, ATTRIBUTES.replace('name = "', 'name = "other-', 1))
    assert not said(found, "cheaper")
    assert not said(found, "dearer")
    assert any(where.startswith("other-") for where in said(found, "anew"))


def test_the_price_of_a_day_is_told_with_its_delta() -> None:
    old, new = (policy_text(day_release(public=each), site=day_site()) for each in ("2", "1"))
    texts = [change.text for change in between(old, new).changes if change.kind == "cheaper"]
    assert "one device, one day, at delta 1e-06, costs epsilon 0.99" in "\n".join(texts)


def test_attributes_become_dearer_with_their_epsilon() -> None:
    found = changed(ATTRIBUTES, ATTRIBUTES.replace('facilities = "1", public', 'facilities = "2", public'))
    where = f"{SITE}/office-day/arrival for facilities"
    assert said(found, "dearer")[where] == "the attribute costs epsilon 2 instead of 1"
    assert any("an odds factor of" in change.text for change in found.changes if change.where == where)


BUDGETS = (
    ('daily_budget = { board = "48" }', 'daily_budget = { board = "24" }', "cheaper", "24 may be spent, instead of "),
    ('daily_budget = { board = "48" }', "", "dearer", "without limit may be spent"),
    ('daily_budget = { board = "48" }', 'daily_budget = { board = "48" }\nrefresh = "2d"', "cheaper", "epsilon 24 may"),
)


@pytest.mark.parametrize(("before", "now", "kind", "text"), BUDGETS)
def test_a_budget_is_compared_by_what_it_pays_a_day(before: str, now: str, kind: str, text: str) -> None:
    found = changed(PLAIN, PLAIN.replace(before, now))
    assert text in said(found, kind)["plain.daily_budget.board"]


BOUNDS = (
    ("max_factor = 30.0", "dearer", "30 instead of 20.0855"),
    ('delta = "1e-7"', "cheaper", "0.0000001 instead of 0.000001"),
    ("devices_per_person = 2", "otherwise", "2 instead of 3: the account says so"),
)


@pytest.mark.parametrize(("line", "kind", "text"), BOUNDS)
def test_bounds_and_assumptions_are_told(line: str, kind: str, text: str) -> None:
    found = changed(PLAIN, PLAIN, head=f"[privacy]\n{line}\n")
    assert said(found, kind)[f"privacy.{line.split(maxsplit=1)[0]}"] == text


def test_publishing_the_truth_is_the_dearest() -> None:
    found = changed(PLAIN, PLAIN, head="[restricted]\noccupancy = true\n")
    assert "no privacy guarantee" in said(found, "dearer")["restricted.occupancy"]


# --- what begins anew ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", names_where("learnt"))
def test_what_is_learnt_begins_anew_with_any_change(mechanism: str) -> None:
    learning = PLAIN.replace('"laplace"', f'"{mechanism}"')
    found = changed(learning, learning, site="max_devices = 1000")
    assert said(found, "anew")[f"{SITE}/plain"].startswith(f"{MECHANISMS[mechanism].learnt} restarts")
    assert found.loses_state


def test_what_learns_nothing_does_not_begin_anew() -> None:
    assert MECHANISMS["laplace"].learnt is None
    assert f"{SITE}/plain" not in said(changed(PLAIN, PLAIN, site="max_devices = 1000"), "anew")


def test_a_changed_tick_begins_a_new_grid() -> None:
    found = changed(PLAIN, PLAIN, tick="5min")
    assert (
        said(found, "anew")[f"{SITE}.tick"] == "5 min instead of 15 min: the next window is the first of the new grid"
    )


def test_the_local_day_at_hand_is_not_asked() -> None:
    found = changed(ATTRIBUTES, ATTRIBUTES, site="max_devices = 1000")
    assert said(found, "anew")[f"{SITE}/office-day"] == "the current local day is not queried; the next one is"


def test_a_publication_that_is_carried_goes_on_only_where_it_belongs_to_the_same() -> None:
    assert not changed(BA, BA + PLAIN).loses_state
    assert not changed(BA, BA.replace('"carried"', '"renamed"')).loses_state
    found = changed(BA, BA.replace("w = 8", "w = 6"))
    assert said(found, "anew")[f"{SITE}/carried"] == "restarts and waits for 7 windows"


def test_names_that_change_at_other_times_are_told() -> None:
    found = changed(PLAIN, PLAIN, site=day_site())
    assert f"{SITE} pseudonyms" in said(found, "anew")


def test_a_site_that_goes_keeps_its_books_and_one_that_comes_begins() -> None:
    one, two = policy_text(PLAIN), policy_text(PLAIN, sites=(SITE, "annex"))
    assert "ledger is kept" in said(between(two, one), "anew")["annex"]
    assert said(between(one, two), "otherwise")["annex"].startswith("begins with the first window")


# --- what changes when a privacy day begins -----------------------------------------------------------


def by_day(release: str, contribution: str = "8h") -> str:
    return policy_text(release, site=day_site(contribution))


def test_a_days_price_on_other_terms_begins_with_the_next_day() -> None:
    found = between(by_day(day_release(public="2")), by_day(day_release(public="1")))
    assert (
        "publishes nothing until the next one, at 04:00 (America/Los_Angeles)"
        in said(found, "day_starts")[f"{SITE}/day"]
    )
    assert found.loses_state


def test_a_days_price_on_equal_terms_goes_on() -> None:
    found = between(by_day(day_release(public="2")), by_day(day_release(public="2") + PLAIN))
    assert said(found, "day_starts") == {}
    assert not found.loses_state


def test_another_contribution_begins_counters_anew_with_the_next_day() -> None:
    found = between(by_day(day_release(public="2")), by_day(day_release(public="2"), "4h"))
    assert set(said(found, "day_starts")) == {f"{SITE}/day", f"{SITE} contribution"}


def test_a_new_release_pays_for_the_day_at_hand_as_a_whole() -> None:
    found = between(by_day(PLAIN), by_day(PLAIN + day_release(public="2")))
    assert "pays for the whole day" in said(found, "otherwise")[f"{SITE}/day"]


MORNING = parse_time("2026-03-03T07:00:00-08:00")
CHANGES = (
    (by_day(day_release(public="2")), by_day(day_release(public="1")), {"waiting"}),
    (by_day(day_release(public="2")), by_day(day_release(public="2") + PLAIN), {None}),
    (by_day(day_release(public="2")), by_day(day_release(public="2"), "4h"), {"waiting"}),
    (by_day(PLAIN), by_day(PLAIN + day_release(public="2")), {None}),
)


@pytest.mark.parametrize(("old", "new", "reasons"), CHANGES)
def test_what_is_said_of_days_is_what_a_running_site_then_does(old: str, new: str, reasons: set[str | None]) -> None:
    before, after = Pipeline(load_policy(old), SITE, laboratory()), Pipeline(load_policy(new), SITE, laboratory())
    log = list(messages(people(hours=14, devices=3), load_policy(old)))
    middle = next(n for n, item in enumerate(log) if isinstance(item, Heartbeat) and item.watermark > MORNING)
    state = before.initial()
    for item in log[:middle]:
        state, _ = before.step(state, item)
    adopted, records = after.migrate(before.encode(state)), []
    for item in log[middle:]:
        adopted, outputs = after.step(adopted, item)
        records += [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and ".day." in o.topic]
    assert {record.get("reason") for record in records} == reasons


# --- zones --------------------------------------------------------------------------------------------


def test_a_zone_is_known_again_by_its_radios() -> None:
    old = policy_text(PLAIN)
    found = between(old, old.replace('id = "a"', 'id = "aula"'))
    assert said(found, "otherwise")[f"{SITE} zone a"] == "is now aula: its charges continue there"
    assert f"{SITE} zone aula" not in said(found, "otherwise")


def test_a_zone_that_comes_and_one_that_goes_are_told() -> None:
    old = policy_text(PLAIN)
    new = old.replace('id = "a"', 'id = "aula"').replace('"02:00:00:00:00:01"', '"02:00:00:00:00:99"')
    otherwise = said(between(old, new), "otherwise")
    assert otherwise[f"{SITE} zone a"] == "no longer counted; its charges stay"
    assert otherwise[f"{SITE} zone aula"] == "counted from the next window on"


# --- the verb -----------------------------------------------------------------------------------------


def diffed(folder: Path, old: str, new: str, *options: str) -> Any:
    (folder / "old.toml").write_text(old)
    (folder / "new.toml").write_text(new)
    return CliRunner().invoke(tacet, ["policy", "diff", str(folder / "old.toml"), str(folder / "new.toml"), *options])


FILTER = PLAIN.replace('"laplace"', '"filter"')


def test_the_exit_code_says_whether_anything_begins_anew(tmp_path: Path) -> None:
    cheaper = PLAIN.replace('"0.5"', '"0.25"')
    assert diffed(tmp_path, policy_text(PLAIN), policy_text(cheaper)).exit_code == 0
    assert diffed(tmp_path, policy_text(FILTER), policy_text(FILTER, site="max_devices = 9")).exit_code == 1
    assert diffed(tmp_path, policy_text(FILTER), policy_text(FILTER)).exit_code == 0


def test_people_are_told_under_titles_and_programs_as_one_object(tmp_path: Path) -> None:
    texts = policy_text(FILTER), policy_text(FILTER.replace('"0.5"', '"0.25"'))
    words = diffed(tmp_path, *texts).output
    assert words.index("\nCheaper:\n") < words.index("\nRestarts from an empty state:\n")
    body = orjson.loads(diffed(tmp_path, *texts, "--json").output)
    assert body["begins_anew"] is True
    assert {change["kind"] for change in body["changes"]} == {"cheaper", "anew"}
    assert "nothing changes" in diffed(tmp_path, texts[0], texts[0]).output


def test_a_policy_that_is_refused_is_no_difference(tmp_path: Path) -> None:
    assert "--accept-policy" not in diffed(tmp_path, policy_text(PLAIN), "[site]\n").output


def test_a_forecast_that_comes_goes_or_has_other_closed_days_is_named() -> None:
    without, forecast = load_policy(policy_text(HALLS)), with_forecast()
    closed = with_forecast(table=TABLE + 'closed = ["2026-01-06"]\n')

    def told(old: Policy, new: Policy) -> list[str]:
        return [each.text for each in difference(old, new).changes if each.where == "dbh/halls-forecast for facilities"]

    assert told(without, forecast) == ["new: computed from released values of halls, free"]
    assert told(forecast, without) == ["no longer forecast"]
    assert told(forecast, closed) == ["other closed days: computed from released values of halls, free"]
    assert told(forecast, forecast) == []
