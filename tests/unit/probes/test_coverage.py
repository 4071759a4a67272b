"""What coverage says of a source that is asked: its answers decide, on the clock's grid, whoever moves."""

from collections.abc import Collection, Iterable, Iterator
from fractions import Fraction

from connectors.sources.ingest.ingest import GRID, Ingest, SiteLimits
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.ingest.state import PROBE_GRID
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, SECOND, Heartbeat, Micros, ObservationBatch
from stream.sensing.watermark import SiteClock, coverage, record_heartbeat

NOON = 17_563 * DAY + 12 * 60 * MINUTE
SOURCES = ("10.2.0.5", "10.2.0.6")
ASKED = ("dbh", SOURCES[0])
RADIO = "f8:4f:57:ab:cd:ef"
WINDOW = 5 * MINUTE
LATENESS = 30 * SECOND


def connector(probed: Collection[str] = SOURCES[:1]) -> Ingest:
    limits = SiteLimits(SOURCES, 10 * MINUTE, 1000, Pseudonyms.daily(bytes(32)), probed=frozenset(probed))
    return Ingest(access_points={RADIO: ("dbh", "2065")}, sites={"dbh": limits})


def sighting(client: int) -> Sighting:
    return Sighting(Kind.ASSOCIATE, client.to_bytes(6, "big"), bytes.fromhex(RADIO.replace(":", "")))


def run(
    minutes: int, silent: Iterable[int] = (), seen: Iterable[Micros] = (), answers_after: Micros = 0,
    probed: Collection[str] = SOURCES[:1],
) -> list[Heartbeat | ObservationBatch]:  # fmt: skip
    """Run for so many minutes from noon; the source does not answer when asked in the minutes that are ``silent``."""
    core, silent, arrivals = connector(probed), set(silent), sorted(seen)
    state = core.initial(NOON)
    messages: list[Heartbeat | ObservationBatch] = []
    for now in range(NOON, NOON + minutes * MINUTE + 1, SECOND):
        core.record_running(state, now)
        at = now - answers_after
        if at % PROBE_GRID == 0 and at >= NOON:
            state.coverage.note(ASKED, at, answered=(at - NOON) // MINUTE not in silent)
        while arrivals and NOON + arrivals[0] <= now:
            core.observe(state, NOON + arrivals.pop(0), SOURCES[0], SOURCES[0], sighting(len(arrivals) + 2))
        messages += core.poll(state, now)
    return messages


def covered(messages: Iterable[object], source: str = SOURCES[0]) -> list[bool]:
    """Return for each window whether the source is covered in it, as the engine sees it when it closes."""
    clock, found = SiteClock(), list[bool]()
    for beat in beats(messages):
        record_heartbeat(clock, beat)
        while beat.source == SOURCES[-1] and beat.watermark >= NOON + (len(found) + 1) * WINDOW + LATENESS:
            end = NOON + (len(found) + 1) * WINDOW
            found.append(coverage(clock, (source,), end - WINDOW, end) == Fraction(1))
    return found


def beats(messages: Iterable[object]) -> Iterator[Heartbeat]:
    return (message for message in messages if isinstance(message, Heartbeat))


def test_a_source_that_answers_is_covered_in_every_window() -> None:
    assert covered(run(31)) == [True] * 6


def test_a_slow_answer_is_in_time_for_the_window_that_it_ends() -> None:
    assert covered(run(31, answers_after=15 * SECOND)) == [True] * 6


def test_a_source_that_never_answers_is_never_covered_however_much_it_sends() -> None:
    traps = range(0, 30 * MINUTE, 7 * SECOND)
    assert covered(run(31, silent=range(99), seen=traps)) == [False] * 6


def test_a_source_without_a_probe_is_covered_while_the_connector_listens() -> None:
    assert covered(run(31, silent=range(99)), SOURCES[1]) == [True] * 6
    assert covered(run(31, silent=range(99), probed=())) == [True] * 6


def test_one_question_without_answer_uncovers_the_window_that_it_lies_in() -> None:
    assert covered(run(31, silent=[12])) == [True, True, False, True, True, True]


def test_a_question_at_the_end_of_a_window_counts_for_both() -> None:
    assert covered(run(31, silent=[10])) == [True, False, False, True, True, True]


def test_a_source_that_answers_again_is_covered_from_its_first_answer_on() -> None:
    assert covered(run(31, silent=range(6, 14))) == [True, False, False, True, True, True]


def test_a_source_that_falls_silent_is_covered_up_to_its_last_answer() -> None:
    until = max(beat.watermark for beat in beats(run(31, silent=range(8, 99))) if vouched(beat))
    assert NOON + 7 * MINUTE <= until < NOON + 7 * MINUTE + 2 * GRID


def vouched(beat: Heartbeat) -> bool:
    return beat.source == SOURCES[0] and beat.listened_since is not None


def test_one_observation_more_changes_no_coverage_and_no_heartbeat() -> None:
    without = run(21, silent=[3, 11])
    for moment in (1, 59 * SECOND, 3 * MINUTE + 1, 11 * MINUTE, 15 * MINUTE + 4 * SECOND):
        beside = run(21, silent=[3, 11], seen=[moment])
        assert list(beats(beside)) == list(beats(without))
        assert len(beside) == len(without) + 1


def test_a_connector_that_paused_confirms_no_coverage_of_the_pause() -> None:
    core = connector()
    state = core.initial(NOON)
    for minute in range(3):
        state.coverage.note(ASKED, NOON + minute * MINUTE, answered=True)
    later = NOON + 2 * MINUTE + 20 * SECOND
    core.record_running(state, NOON + 2 * MINUTE)
    core.record_running(state, later)
    found = {beat.listened_since for beat in beats(core.poll(state, later + 30 * SECOND)) if vouched(beat)}
    assert found == {state.listened_since}
    assert state.listened_since >= later


def test_a_question_that_was_never_asked_begins_a_new_run() -> None:
    core = connector()
    state = core.initial(NOON)
    for minute in (0, 1, 4):
        state.coverage.note(ASKED, NOON + minute * MINUTE, answered=True)
    assert state.coverage.since(ASKED, NOON + 5 * MINUTE, NOON) == NOON + 4 * MINUTE
