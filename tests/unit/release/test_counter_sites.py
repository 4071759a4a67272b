"""Sites with people counters: the same releases, ledger and budgets, without devices."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from connectors.cli.main import tacet
from connectors.keys import key_files
from connectors.operations.policy.guarantees import guarantee_lines
from connectors.sources.counters.files import CountsFile
from connectors.sources.recordings.observations import ObservationFile, shortfall
from connectors.storage.embedded import outboxes
from connectors.storage.embedded.reader import read_outbox, read_topic
from connectors.storage.embedded.rollback_mark import MarkFile
from connectors.storage.embedded.runner import embedded
from connectors.storage.embedded.store import SqliteStore
from stream.encoding import decode_message, encode_message
from stream.encryption import Kind, clear_of, seal
from stream.errors import DataError, PolicyError, UsageError
from stream.pipeline import Options, Pipeline
from stream.policy.document import PolicyDocument
from stream.records import (
    LARGEST_COUNT,
    MINUTE,
    CountedWindow,
    Heartbeat,
    Message,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    Published,
    Rejected,
    Row,
)
from stream.release.validation import Policy, load_policy, validate
from stream.schemas import AUDIT, LEAKAGE, OCCUPANCY, QUARANTINE, parse_time, rfc3339
from stream.sensing.counter_feed import COUNTERS, CounterFeedOperator
from stream.sensing.watermark import MAX_CLOCK_SKEW, bounded
from tests.support.day_policies import day_release
from tests.support.small_building import laboratory

SITE, TICK = "mall", 15 * MINUTE
BEGIN = parse_time("2026-03-02T12:00:00Z")
ZONES = ("gate", "hall", "roof")
RELEASES = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
levels = ["zone", "building"]
epsilon = { facilities = "0.5" }
daily_budget = { facilities = "20" }

[[release]]
name = "smooth"
query = "count"
mechanism = "filter"
epsilon = { public = "0.5" }
"""


def text(releases: str = RELEASES, site: str = "") -> str:
    zones = "".join(f'[[site.{SITE}.zones]]\nid = "{zone}"\ncapacity = 20\n' for zone in ZONES)
    head = f'[site.{SITE}]\nfeed = "counts"\ntick = "15min"\n{site}\n'
    return f'{head}{zones}[[audience]]\nname = "facilities"\n[[audience]]\nname = "public"\n{releases}'


POLICY = load_policy(text())
OMITTED = load_policy(text(site='zeros = "omitted"'))


def window(number: int, *counts: int | None, session: int = BEGIN) -> CountedWindow:
    reported = tuple((zone, n) for zone, n in zip(ZONES, counts, strict=False) if n is not None)
    return CountedWindow(SITE, COUNTERS, session, BEGIN + number * TICK, reported)


def windows_of(items: list[Message], policy: Policy = POLICY, **options: Any) -> list[OccupancyWindow]:
    """Return the windows that the first stage makes of messages."""
    sense = Pipeline(policy, SITE, laboratory(), Options(**options)).stages.occupancy
    state, made = sense.initial(), []
    for item in items:
        state, out = sense.step(state, item)
        made += out
    return [each for each in made if isinstance(each, OccupancyWindow)]


# --- the policy ---------------------------------------------------------------------------------------


def test_a_site_declares_that_it_is_told_counts_and_needs_no_source_and_no_access_point() -> None:
    site = POLICY.site[SITE]
    assert (site.feed, site.sources, site.radios["gate"], site.ticks_per_observation) == ("counts", (), (), 1)
    assert validate(PolicyDocument.from_document(POLICY.document())) == POLICY


def test_whether_zeros_are_left_out_is_declared_of_counts_and_part_of_the_policy_s_meaning() -> None:
    assert OMITTED.version != POLICY.version
    assert load_policy(text(site='zeros = "reported"')).version == POLICY.version
    assert validate(PolicyDocument.from_document(OMITTED.document())) == OMITTED
    devices = text(site='zeros = "omitted"').replace('feed = "counts"', 'sources = ["10.2.0.5"]')
    for number, zone in enumerate(ZONES):
        devices = devices.replace(f'id = "{zone}"', f'id = "{zone}"\naccess_points = ["02:00:00:00:00:0{number}"]')
    with pytest.raises(PolicyError, match=r"zeros must be given with feed = 'counts' only, got 'omitted'"):
        load_policy(devices)
    with pytest.raises(PolicyError, match=r"site.mall.zeros"):
        load_policy(text(site='zeros = "sometimes"'))


NOT_WITH_COUNTS = (
    ('sources = ["10.2.0.5"]', "sources must not be given with feed = 'counts'"),
    ('validity = "20min"', "validity must not be given with feed = 'counts'"),
    ('day_starts = "04:00"\ncontribution = "6h"\nresidents = "ignore"', "residents must not be given with feed"),
)


@pytest.mark.parametrize(("key", "rule"), NOT_WITH_COUNTS)
def test_what_is_about_devices_is_refused_with_counts(key: str, rule: str) -> None:
    with pytest.raises(PolicyError, match=rule):
        load_policy(text(site=key))


def test_an_access_point_is_refused_with_counts_and_named_by_its_zone() -> None:
    listed = text().replace('id = "hall"\n', 'id = "hall"\naccess_points = ["02:00:00:00:00:01"]\n')
    with pytest.raises(PolicyError, match=r"zones\[1\] \(id 'hall'.*must list no access point with feed"):
        load_policy(listed)


def test_without_it_a_site_needs_its_sources_and_addresses_as_before() -> None:
    with pytest.raises(PolicyError, match=r"site.mall.sources: must be given, with at least 1") as refused:
        load_policy(text().replace('feed = "counts"\n', ""))
    assert "zones[0] (id 'gate'" in str(refused.value)


def test_the_unit_is_told_in_words() -> None:
    (line,) = [line for line in guarantee_lines(POLICY, "public") if "people counters" in line]
    assert "one person in one cell, that is, in one zone at one tick" in line
    by_day = load_policy(text(day_release(public="2"), 'day_starts = "04:00"\ncontribution = "6h"'))
    assert any("one person's day of at most 6 h in cells" in line for line in guarantee_lines(by_day, "public"))


def test_policy_show_tells_the_unit(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(text())
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(tacet, ["policy", "show", f"{tmp_path}/policy.toml"])
    assert "Site mall receives counts from people counters" in shown.output
    body = orjson.loads(CliRunner().invoke(tacet, ["policy", "show", f"{tmp_path}/policy.toml", "--json"]).stdout)
    assert body["counted_sites"] == [SITE]
    assert body["zeros"] == {SITE: "reported"}


@pytest.mark.parametrize(
    ("policy", "words"), [(POLICY, "without a row for each zone is refused"), (OMITTED, "coverage says nothing about")]
)
def test_what_coverage_says_of_zones_is_among_the_promises(policy: Policy, words: str) -> None:
    (line,) = [line for line in guarantee_lines(policy, "public") if "people counters" in line]
    assert words in line


# --- from counts to windows ---------------------------------------------------------------------------


def test_counts_are_the_windows_counts_in_the_order_of_the_registry() -> None:
    (made,) = windows_of([window(0, 3, 0, 7)])
    assert (made.window_end, made.counts, made.bounded) == (BEGIN, (3, 0, 7), None)
    assert made.coverage == 1


def test_a_window_that_nobody_has_told_of_is_not_covered_and_none_is_left_out() -> None:
    made = windows_of([window(0, 1, 2, 3), window(3, 4, 5, 6)])
    assert [each.window_end for each in made] == [BEGIN + n * TICK for n in range(4)]
    assert [each.coverage for each in made] == [1, 0, 0, 1]
    assert [each.counts for each in made] == [(1, 2, 3), (0, 0, 0), (0, 0, 0), (4, 5, 6)]


LACKING = [counts for counts in itertools.product((None, 3), repeat=len(ZONES)) if None in counts]


@pytest.mark.parametrize("counts", LACKING)
def test_coverage_does_not_tell_which_zones_a_window_lacks(counts: tuple[int | None, ...]) -> None:
    """A zone that is lacking may be empty: the window is refused whole, and quarantine says so."""
    sense = Pipeline(POLICY, SITE, laboratory()).stages.occupancy
    state, _ = sense.step(sense.initial(), window(0, 1, 1, 1))
    state, made = sense.step(state, window(1, *counts))
    (closed,) = [each for each in made if isinstance(each, OccupancyWindow)]
    assert closed.coverage == 0
    assert closed.counts == (0, 0, 0)
    rejected = [] if counts == (None, None, None) else [Rejected(COUNTERS, "incomplete", "counts")]
    assert [each for each in made if isinstance(each, Rejected)] == rejected
    assert state.counters["accepted"] == 3
    assert state.counters["incomplete"] == sum(n is not None for n in counts)


@pytest.mark.parametrize("counts", LACKING)
def test_where_zeros_are_left_out_nothing_that_is_released_tells_a_zero_from_a_row_that_lacks(
    counts: tuple[int | None, ...],
) -> None:
    def published(item: CountedWindow) -> list[Any]:
        pipeline = Pipeline(OMITTED, SITE, laboratory())
        state, made = pipeline.initial(), []
        for each in (window(0, 1, 2, 3), item, window(2, 0, 0, 9)):
            state, out = pipeline.step(state, each)
            made += out
        return made

    lacking = published(window(1, *counts))
    assert lacking == published(window(1, *(n or 0 for n in counts)))
    records = [orjson.loads(each.value) for each in lacking if isinstance(each, Published) and "plain" in each.topic]
    assert [record["coverage"] for record in records] == [1, 1, 1]


def test_where_zeros_are_left_out_a_window_that_was_never_read_is_not_covered() -> None:
    assert [each.coverage for each in windows_of([window(0), window(2)], OMITTED)] == [1, 0, 1]


def test_a_window_is_closed_once() -> None:
    sense = Pipeline(POLICY, SITE, laboratory()).stages.occupancy
    state = sense.initial()
    for item in (window(0, 1, 1, 1), window(1, 1, 1, 1), window(1, 9, 9, 9), window(0, 9, 9, 9)):
        state, _ = sense.step(state, item)
    later = window(1, 9, 9, 9, session=BEGIN + 1)
    state, made = sense.step(state, later)
    assert made == []
    assert (state.counters["accepted"], state.counters["repeated_batch"], state.counters["late"]) == (6, 6, 3)


def test_windows_outside_the_range_are_not_made() -> None:
    made = windows_of([window(n, n, n, n) for n in range(5)], first_window=BEGIN + TICK, last_window=BEGIN + 3 * TICK)
    assert [each.counts[0] for each in made] == [1, 2, 3]


FAULTS: tuple[tuple[Message, str], ...] = (
    (Heartbeat(SITE, COUNTERS, 1, BEGIN), "input"),
    (ObservationBatch(SITE, COUNTERS, 1, 0, (Row("d", "02:00:00:00:00:01", BEGIN),)), "input"),
    (CountedWindow(SITE, "others", 1, BEGIN, ()), "unknown_source"),
    (CountedWindow(SITE, COUNTERS, 1, BEGIN + 1, ()), "grid"),
    (CountedWindow(SITE, COUNTERS, 1, BEGIN, (("cellar", 1),)), "unknown_zone"),
    (CountedWindow("elsewhere", COUNTERS, 1, BEGIN, ()), "wrong_site"),
)


@pytest.mark.parametrize(("message", "reason"), FAULTS)
def test_anything_else_is_rejected(message: Message, reason: str) -> None:
    sense = Pipeline(POLICY, SITE, laboratory()).stages.occupancy
    assert isinstance(sense, CounterFeedOperator)
    state, made = sense.step(sense.initial(), message)
    assert [each.reason for each in made if isinstance(each, Rejected)] == [reason]
    assert state.next_tick is None


def test_a_site_that_counts_devices_takes_no_counts() -> None:
    devices = text().replace('feed = "counts"', f'sources = ["{COUNTERS}"]'.replace(COUNTERS, "10.2.0.5"))
    for number, zone in enumerate(ZONES):
        devices = devices.replace(f'id = "{zone}"', f'id = "{zone}"\naccess_points = ["02:00:00:00:00:0{number}"]')
    sense = Pipeline(load_policy(devices), SITE, laboratory()).stages.occupancy
    _, made = sense.step(sense.initial(), CountedWindow(SITE, "10.2.0.5", 1, BEGIN, (("gate", 1),)))
    assert [each.reason for each in made if isinstance(each, Rejected)] == ["input"]


def test_a_long_gap_is_closed_in_steps_that_can_be_begun_again() -> None:
    sense = Pipeline(POLICY, SITE, laboratory()).stages.occupancy
    state, _ = sense.step(sense.initial(), window(0, 1, 1, 1))
    steps = sense.steps(state, window(50, 2, 2, 2))
    first, last = next(steps)
    rest = [each for part, _ in sense.steps(state, window(50, 2, 2, 2)) for each in part]
    ends = [each.window_end for each in (*first, *rest) if isinstance(each, OccupancyWindow)]
    assert (last, ends) == (False, [BEGIN + n * TICK for n in range(1, 51)])


def test_a_state_is_read_back_from_its_bytes() -> None:
    sense = Pipeline(POLICY, SITE, laboratory()).stages.occupancy
    state, _ = sense.step(sense.initial(), window(0, 1, 1, 1))
    assert sense.encode(sense.decode(sense.encode(state))) == sense.encode(state)
    assert sense.decode(sense.encode(state)).next_tick == BEGIN + TICK


# --- one person more in one cell ----------------------------------------------------------------------


def recording(seed: int, windows: int = 12) -> list[Message]:
    rng = random.Random(seed)
    return [window(n, *(rng.randrange(30) for _ in ZONES)) for n in range(windows)]


def zeros(windows: int) -> Iterator[Message]:
    """Yield a day on which nobody comes."""
    yield from (window(n, 0, 0, 0) for n in range(windows))


def test_nobody_is_a_count_too() -> None:
    assert {each.counts for each in windows_of([*zeros(8)])} == {(0, 0, 0)}


def one_more(items: list[Message], cell: tuple[int, int]) -> list[Message]:
    place, number = cell
    item = items[number]
    assert isinstance(item, CountedWindow)
    counts = tuple((zone, n + (at == place)) for at, (zone, n) in enumerate(item.counts))
    changed = CountedWindow(item.site, item.source, item.session, item.window_end, counts)
    return [*items[:number], changed, *items[number + 1 :]]


BY_DAY = load_policy(text(day_release(public="2"), 'day_starts = "04:00"\ncontribution = "6h"'))


@pytest.mark.parametrize("policy", [POLICY, BY_DAY], ids=["window", "day"])
@pytest.mark.parametrize("seed", range(6))
def test_one_person_more_in_one_cell_changes_one_count_by_one(policy: Policy, seed: int) -> None:
    items, rng = recording(seed), random.Random(seed)
    cell = rng.randrange(len(ZONES)), rng.randrange(len(items))
    before, after = windows_of(items, policy), windows_of(one_more(items, cell), policy)
    changes = [
        (place, number, now - then)
        for number, (first, second) in enumerate(zip(before, after, strict=True))
        for place, (then, now) in enumerate(zip(first.counts, second.counts, strict=True))
        if then != now
    ]
    assert changes == [(*cell, 1)]
    assert [each.coverage for each in before] == [each.coverage for each in after]
    assert [each.bounded for each in after] == [each.counts if policy is BY_DAY else None for each in after]


def test_which_records_there_are_and_what_they_cost_does_not_depend_on_counts() -> None:
    def shape(items: list[Message]) -> list[tuple[str, Micros, str, Any, Any]]:
        pipeline = Pipeline(POLICY, SITE, laboratory())
        state, made = pipeline.initial(), []
        for item in items:
            state, out = pipeline.step(state, item)
            made += [each for each in out if isinstance(each, Published)]
        bodies = [(each, orjson.loads(each.value)) for each in made]
        return [(each.topic, each.time, each.id, body.get("spend"), body.get("released")) for each, body in bodies]

    one, other = recording(1), [*zeros(12)]
    assert shape(one) == shape(other)
    assert len(shape(one)) > 40


def test_a_day_is_paid_once_and_every_window_of_it_is_released() -> None:
    pipeline = Pipeline(BY_DAY, SITE, laboratory())
    state, made = pipeline.initial(), []
    for item in recording(2):
        state, out = pipeline.step(state, item)
        made += [orjson.loads(each.value) for each in out if isinstance(each, Published) and ".day." in each.topic]
    assert [record["released"] for record in made] == [True] * 12
    assert [record["spend"] for record in made] == ["2", *["0"] * 11]


# --- messages -----------------------------------------------------------------------------------------


def unlocked(message: CountedWindow, counts: object = None, **fields: object) -> bytes:
    """Return a message that is not encrypted, with these counts and fields, as anybody may write it."""
    head = orjson.loads(clear_of(Kind.OBSERVATIONS, encode_message(message))) | fields
    content = orjson.dumps(dict(message.counts) if counts is None else counts)
    return seal(Kind.OBSERVATIONS, content, clear=orjson.dumps(head))


def test_a_message_is_read_back_and_a_bad_count_loses_only_itself() -> None:
    message = window(0, 1, 2, 3)
    assert decode_message(encode_message(message)) == (message, [])
    made, rejected = decode_message(unlocked(message, {"gate": 1, "hall": -1, "roof": LARGEST_COUNT + 1}))
    assert isinstance(made, CountedWindow)
    assert (made.counts, [each.reason for each in rejected]) == ((("gate", 1),), ["row", "row"])


@pytest.mark.parametrize("field", [{"window_end": "now"}, {"window_end": -1}, {"counts": [1]}, {"session": "x"}])
def test_a_message_of_another_form_is_rejected_whole(field: dict[str, Any]) -> None:
    made, rejected = decode_message(unlocked(window(0, 1), **field))
    assert (made, len(rejected)) == (None, 1)


def test_a_live_message_may_not_claim_a_window_far_ahead() -> None:
    assert bounded(window(0, 1), BEGIN - MAX_CLOCK_SKEW)[0] is not None
    assert bounded(window(0, 1, session=1), BEGIN - MAX_CLOCK_SKEW - 1) == (
        None,
        [Rejected(COUNTERS, "ahead", "window_end")],
    )


# --- files --------------------------------------------------------------------------------------------


def written(folder: Path, *lines: str, header: str = "window_end,zone,count") -> Path:
    path = folder / "counts.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def at(number: int) -> str:
    return rfc3339(BEGIN + number * TICK)


def test_a_file_in_any_order_tells_of_every_window_of_its_range(tmp_path: Path) -> None:
    path = written(tmp_path, f"{at(2)},hall,5", f"{at(0)},gate,3", f"{at(0)},hall,4")
    assert list(CountsFile(path, POLICY).messages()) == [window(0, 3, 4), window(1), window(2, None, 5)]
    given = CountsFile(path, POLICY, since=BEGIN - TICK, until=BEGIN + TICK)
    assert [item.window_end for item in given.messages()] == [BEGIN + n * TICK for n in (-1, 0, 1)]
    assert given.tally.outside == 1


def test_the_session_of_a_file_is_its_first_window_or_the_range_s(tmp_path: Path) -> None:
    path = written(tmp_path, f"{at(2)},hall,5", f"{at(1)},gate,3")
    assert CountsFile(path, POLICY).begin() == BEGIN + TICK
    assert CountsFile(path, POLICY, since=BEGIN).begin() == BEGIN
    assert CountsFile(written(tmp_path), POLICY).begin() is None


BAD_ROWS = (
    (f"{at(0)},cellar,3", "zone must be one of the site's"),
    (f"{at(0)},gate,-3", "count must be a whole number from 0 to 1,000,000"),
    (f"{at(0)},gate,1000001", "count must be a whole number from 0 to 1,000,000"),
    (f"{at(0)},gate,3.0", "count must be a whole number from 0 to 1,000,000"),
    ("2026-03-02T12:00:01Z,gate,3", "window_end must be RFC 3339 with an offset"),
    ("soon,gate,3", "window_end must be RFC 3339 with an offset"),
    (f"{at(0)},gate", "must have the fields that the first line names"),
)


@pytest.mark.parametrize(("line", "rule"), BAD_ROWS)
def test_a_bad_row_spoils_its_own_cell_and_is_named_by_line_and_rule(tmp_path: Path, line: str, rule: str) -> None:
    file = CountsFile(written(tmp_path, f"{at(0)},hall,4", line), POLICY)
    assert list(file.messages()) == [window(0, None, 4)]
    (problem,) = file.tally.problems
    assert problem.startswith(f"line 3: {rule}")


def test_windows_of_a_file_that_lack_a_zone_are_counted_unless_zeros_are_left_out(tmp_path: Path) -> None:
    lines = [*(f"{at(0)},{zone},1" for zone in ZONES), f"{at(1)},hall,4", f"{at(3)},hall,4", f"{at(3)},gate,x"]
    for policy, incomplete in ((POLICY, 2), (OMITTED, 0)):
        file = CountsFile(written(tmp_path, *lines), policy)
        file.begin()
        assert file.tally.incomplete == incomplete
        problem = str(shortfall(file.tally))
        assert ("2 windows were refused: each window must have a good row for each zone" in problem) == bool(incomplete)


def test_of_two_rows_of_a_cell_neither_is_believed(tmp_path: Path) -> None:
    file = CountsFile(written(tmp_path, f"{at(0)},hall,4", f"{at(0)},hall,5"), POLICY)
    assert list(file.messages()) == [window(0)]
    assert file.tally.problems == ["line 3: each pair of window_end and zone must appear once"]


def test_of_several_sites_rows_say_which(tmp_path: Path) -> None:
    other = text().replace(f"site.{SITE}", "site.arena").partition("[[audience]]")[0]
    policy = load_policy(other + text())
    path = written(tmp_path, f"{at(0)},hall,4,{SITE}", f"{at(0)},hall,5,arena", header="window_end,zone,count,site")
    reported = {item.site: item.counts for item in CountsFile(path, policy).messages()}
    assert reported == {SITE: (("hall", 4),), "arena": (("hall", 5),)}
    with pytest.raises(UsageError, match="site is missing"):
        CountsFile(written(tmp_path, f"{at(0)},hall,4"), policy).begin()


def test_a_file_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must have a site whose devices are counted"):
        ObservationFile(tmp_path / "o.csv", POLICY, bytes(32))


# --- the whole of it, killed at every step ------------------------------------------------------------


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with policy, key, counts of a day and what a run makes of them that nothing interrupts."""
    folder = tmp_path_factory.mktemp("counted")
    (folder / "policy.toml").write_text(text())
    key_files.create(folder / "key", laboratory=True)
    rng = random.Random(7)
    lines = [f"{at(n)},{zone},{rng.randrange(40)}" for n in range(60) for zone in ZONES]
    rng.shuffle(lines)
    written(folder, *lines)
    record_running(folder, folder / "whole")
    return folder


def record_running(scenario: Path, store: Path) -> None:
    with embedded(POLICY, scenario / "key", store) as runner:
        for message in CountsFile(scenario / "counts.csv", POLICY).messages():
            runner.process(message, durable=False)


def held(store: Path) -> dict[str, Any]:
    boxes = {name: [value for _, value in read_outbox(store, name, 0)] for name in ("facilities", "public")}
    return boxes | {topic: read_topic(store, topic) for topic in (AUDIT, LEAKAGE)}


class Killed(BaseException):
    """Stands for the end of the process."""


STEPS: tuple[tuple[Any, str, bool], ...] = (
    (SqliteStore, "commit", True), (SqliteStore, "commit", False), (MarkFile, "advance", False),
    (MarkFile, "_write", True), (SqliteStore, "deliver", True), (SqliteStore, "deliver", False),
    (outboxes, "_put", True),
)  # fmt: skip


def ending(owner: Any, name: str, calls: int, *, before: bool) -> Callable[..., Any]:
    """Return a function that ends the run at its n-th call."""
    real, left = getattr(owner, name), iter(range(calls, -1, -1))

    def call(*args: Any, **more: Any) -> Any:
        due = next(left, -1) == 0
        if due and before:
            raise Killed
        made = real(*args, **more)
        if due:
            raise Killed
        return made

    return call


@pytest.mark.parametrize(("owner", "name", "before"), STEPS, ids=lambda each: str(getattr(each, "__name__", each)))
def test_a_run_that_is_killed_at_any_step_loses_nothing_and_releases_nothing_twice(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: bool
) -> None:
    killed = 0
    for calls in (0, 2, 9, 17):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, ending(owner, name, calls, before=before))
            try:
                record_running(scenario, tmp_path / "store")
            except Killed:
                killed += 1
    record_running(scenario, tmp_path / "store")
    assert killed >= 2
    assert held(tmp_path / "store") == held(scenario / "whole")
    entries = [orjson.loads(value) for value in held(scenario / "whole")[AUDIT]]
    assert len({entry["release_id"] for entry in entries}) == len(entries) == 2 * 60


def test_budgets_deny_what_they_cannot_pay_at_the_usual_time(scenario: Path) -> None:
    """20 a day at 0.5 a window pay for 40 windows of a UTC day; the day at hand has 48."""
    records = [orjson.loads(value) for value in held(scenario / "whole")["facilities"]]
    denied = [record["window_end"] for record in records if not record["released"]]
    assert denied == [at(n) for n in range(40, 49)]
    assert {record["reason"] for record in records if not record["released"]} == {"budget"}


def test_a_building_may_have_sites_of_both_kinds_each_fed_by_its_own_file(tmp_path: Path) -> None:
    radio, source = "02:00:00:00:00:01", "10.2.0.5"
    devices = (
        f'[site.lab]\nsources = ["{source}"]\ntick = "15min"\n'
        f'[[site.lab.zones]]\nid = "hall"\ncapacity = 9\naccess_points = ["{radio}"]\n'
    )
    policy = load_policy(devices + text(site='zeros = "omitted"'))
    key_files.create(tmp_path / "key", laboratory=True)
    seen = tmp_path / "seen.csv"
    seen.write_text(f"time,device,access_point,site\n{at(0)},a4:00:00:00:00:01,{radio},lab\n")
    counts = written(tmp_path, f"{at(0)},hall,4", f"{at(1)},hall,5")
    with embedded(policy, tmp_path / "key", tmp_path / "store") as runner:
        both: list[Message] = [*ObservationFile(seen, policy, bytes(32)).messages()]
        both += CountsFile(counts, policy).messages()
        for message in both:
            runner.process(message, durable=False)
    entries = [orjson.loads(value) for value in read_topic(tmp_path / "store", AUDIT)]
    assert {entry["site"] for entry in entries} == {"lab", SITE}
    assert runner.partition.counters.rejected == 0


# --- the verb -----------------------------------------------------------------------------------------


def ran(scenario: Path, store: Path, *more: str) -> Any:
    common = ["run", "--policy", f"{scenario}/policy.toml", "--store", str(store), *more]
    return CliRunner().invoke(tacet, common)


def test_run_takes_counts_and_says_what_became_of_them(scenario: Path, tmp_path: Path) -> None:
    given = "--key-file", f"{scenario}/key", "--counts", f"{scenario}/counts.csv"
    done = ran(scenario, tmp_path / "store", *given, "--json")
    assert (done.exit_code, orjson.loads(done.stdout)["rows"]) == (0, 180)
    assert held(tmp_path / "store") == held(scenario / "whole")
    again = ran(scenario, tmp_path / "store", *given)
    assert again.exit_code == 0, again.output
    account = CliRunner().invoke(tacet, ["account", "--store", f"{tmp_path}/store"])
    assert account.exit_code == 0, account.output


def test_run_says_which_rule_refused_windows_and_how_zeros_that_are_left_out_are_declared(
    scenario: Path, tmp_path: Path
) -> None:
    path = written(tmp_path, f"{at(0)},hall,4", f"{at(1)},gate,0", f"{at(1)},hall,0", f"{at(1)},roof,1")
    done = ran(scenario, tmp_path / "store", "--key-file", f"{scenario}/key", "--counts", str(path))
    assert isinstance(done.exception, DataError)
    assert str(done.exception) == (
        "1 window was refused: each window must have a good row for each zone, unless the policy declares zeros = "
        "'omitted' for the site"
    )
    records = [orjson.loads(value) for _, value in read_outbox(tmp_path / "store", "facilities", 0)]
    assert [record["coverage"] for record in records] == [0, 1]
    (set_aside,) = [orjson.loads(value) for value in read_topic(tmp_path / "store", QUARANTINE)]
    assert (set_aside["reason"], set_aside["source"]) == ("incomplete", COUNTERS)


def test_under_a_production_key_a_file_of_counts_needs_its_range(scenario: Path, tmp_path: Path) -> None:
    key_files.create(tmp_path / "key", laboratory=False, first_day=BEGIN // (96 * TICK))
    given = ("--key-file", f"{tmp_path}/key", "--counts", f"{scenario}/counts.csv")
    assert isinstance(ran(scenario, tmp_path / "store", *given).exception, UsageError)
    done = ran(scenario, tmp_path / "store", *given, "--from", at(0), "--to", at(5))
    assert done.exit_code == 0, done.output
    assert len(read_topic(tmp_path / "store", AUDIT)) == 2 * 6


def test_counts_and_observations_do_not_go_together(scenario: Path, tmp_path: Path) -> None:
    both = ran(scenario, tmp_path, "--key-file", f"{scenario}/key", "--counts", "a.csv", "--observations", "b.csv")
    assert both.exit_code == 2


def test_true_counts_are_published_only_where_the_policy_asks(scenario: Path) -> None:
    assert read_topic(scenario / "whole", OCCUPANCY) == []


# --- the account --------------------------------------------------------------------------------------


def told(scenario: Path, *words: str) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(tacet, ["account", "--store", f"{scenario}/whole", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("more", [(), ("--tight",), ("--coalition", "facilities,public")])
def test_the_account_of_a_site_that_is_told_counts_names_people_in_cells_and_no_device(
    scenario: Path, more: tuple[str, ...]
) -> None:
    shown = told(scenario, *more)
    assert "one person in one cell: one zone at one tick" in shown
    assert "one person, one day" in shown
    assert "device" not in shown
    assert "trap" not in shown


def test_its_figures_are_those_of_one_person_not_of_three_devices(scenario: Path) -> None:
    site = orjson.loads(told(scenario, "--json"))["sites"][SITE]
    assert site["feed"] == "counts"
    facilities = site["last"]["audiences"]["facilities"]
    assert facilities["device_total"] != facilities["person_total"]
    (row,) = [line for line in told(scenario).splitlines() if "one person, in all" in line and "δ" not in line]
    assert str(facilities["device_total"]) in row
    assert str(facilities["person_total"]) not in row


def test_policy_show_and_diff_price_what_the_site_knows(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(text())
    (tmp_path / "new.toml").write_text(text().replace('"0.5" }\ndaily', '"0.7" }\ndaily'))
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(tacet, ["policy", "show", f"{tmp_path}/old.toml"]).output
    heads = shown.partition("epsilons of counts")[2].partition("Budgets")[0]
    assert "device" not in heads
    assert "person" in heads
    compared = CliRunner(env={"COLUMNS": "200"}).invoke(
        tacet, ["policy", "diff", f"{tmp_path}/old.toml", f"{tmp_path}/new.toml"]
    )
    assert "one person in one cell" in compared.output
    assert "device" not in compared.output
