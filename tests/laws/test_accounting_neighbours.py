"""One accounting request more, from its octets through connector and engine: Start, Interim-Update or Stop.

All draws come from fixed seeds, so there are no false alarms. True counts are read from the restricted topic.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from connectors.sources.ingest.ingest import Ingest
from connectors.sources.radius.decoder import account, read
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.pipeline import Options
from stream.records import DAY, MINUTE, SECOND, Micros
from stream.release.stage import ReleaseStage
from stream.schemas import OCCUPANCY, parse_record
from tests.laws.test_neighbours import ZONES, Cells, different, policy
from tests.support.small_building import EVENING, SITE, SOURCES, access_point, laboratory, mac
from tests.unit.radius.accounting_requests import INTERIM, SECRET, START, STOP, request

SPAN = 60 * MINUTE
MIDNIGHT = (EVENING // DAY + 1) * DAY
LATENESS = 30 * SECOND


@pytest.fixture(autouse=True)
def without_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are looked at before any noise, so nothing is released."""
    monkeypatch.setattr(ReleaseStage, "step", lambda _, state, item: (state, []))


class Sent(NamedTuple):
    """One request, and when it arrives."""

    time: Micros
    device: int
    zone: str
    status: int
    session: int
    delay: int
    """Seconds."""


def requests(rng: random.Random, begin: Micros, devices: int, number: int) -> list[Sent]:
    """Draw requests in bursts of one device, on ticks and edges of V, some held back, sessions ended and mixed up."""
    made, time = [], begin
    for _ in range(number):
        time = rng.choice((rng.randrange(begin, begin + SPAN), time + 3 * SECOND, time + 10 * MINUTE, time + 1))
        time = min(time if rng.random() < 0.8 else time // (5 * MINUTE) * 5 * MINUTE, begin + SPAN)
        status, delay = rng.choice((START, INTERIM, INTERIM, STOP, STOP)), rng.choice((0, 0, 0, 2, 8, 29, 30))
        made.append(Sent(time, rng.randrange(devices), rng.choice(ZONES), status, rng.randrange(2), delay))
    return sorted(made)


def cells(sent: Sequence[Sent], begin: Micros) -> tuple[Cells, Counter[str | None]]:
    """Return the true counts, and what became of the requests; no row may come after its window."""
    core, partition = (
        Ingest.of_policy(policy(), bytes(32)),
        PartitionEngine(policy(), laboratory(), Options(occupancy=True)),
    )
    state, todo, log, became = core.initial(begin), [*sent], [], Counter[str | None]()
    for now in range(begin, begin + SPAN + 30 * MINUTE, 5 * SECOND):
        while todo and todo[0].time <= now:
            one = todo.pop(0)
            datagram = request(
                one.status, calling=mac(one.device), called=f"{access_point(one.zone)}:net", delay=one.delay,
                session=str(one.session),
            )  # fmt: skip
            source = SOURCES[one.device % 2]
            sighting = account(read(datagram, (SECRET,)), one.time).sighting
            became[core.observe(state, one.time, source, source, sighting).dropped] += 1
            log += core.poll(state, one.time)
        core.record_running(state, now)
        log += core.poll(state, now)
    found = Cells()
    for offset, message in enumerate(log):
        for out in partition.process(offset, None, encode_message(message)):
            if out.topic == OCCUPANCY:
                record = parse_record(out.value)
                found.update({(record["window_end"], zone): n for zone, n in record["counts"].items()})
    assert not partition.sites.sensing()[SITE].counters.get("late")
    return found, became


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(each, marks=pytest.mark.long) for each in range(4, 10))])
def test_one_request_more_changes_at_most_four_cells_whatever_else_is_sent(seed: int) -> None:
    rng = random.Random(seed)
    begin = MIDNIGHT - SPAN // 2 if seed % 2 else EVENING
    sent = requests(rng, begin, devices=rng.choice((1, 3)), number=40)
    whole, became = cells(sent, begin)
    assert set(became) <= {None, "collapsed", "no_stay"}
    changed = Counter[int]()
    for gone in range(0, len(sent), 4):
        without, _ = cells([*sent[:gone], *sent[gone + 1 :]], begin)
        changed[len(different(whole, without))] += 1
    assert max(changed) <= 4, "two zones at each of two ticks"
    assert changed.keys() - {0}, "the comparison means something"


def test_stops_end_stays_and_take_people_out_of_the_next_count() -> None:
    """Otherwise the law above would hold of a receiver that passes every Stop over."""
    stay = [Sent(EVENING + MINUTE, 0, "a", START, 1, 0), Sent(EVENING + 3 * MINUTE, 0, "a", STOP, 1, 0)]
    (whole, became), (without, _) = cells(stay, EVENING), cells(stay[:1], EVENING)
    assert became == {None: 2}
    assert len(different(whole, without)) == 2
    assert sum(whole.values()) == 0
    assert sum(without.values()) == 2
