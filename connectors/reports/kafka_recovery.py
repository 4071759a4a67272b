"""What keeps workers on a cluster from going on, and the ways out: each with its price, and none that forks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from connectors import keyfile
from connectors.kafka.bounded import begin_offsets, end_offsets, first_used, last_snapshot, read_one, read_range
from connectors.kafka.control import engine_counts, read
from connectors.kafka.topics import refuse_producers_time, result_topics
from connectors.reports.kafka_books import kafka_books
from connectors.reports.kafka_ledgers import ACCEPT_LOSS, RETIRE, of_ended, of_key, of_next, ways_after_loss
from connectors.reports.ways import Finding, Way
from stream.errors import AuditError, DataError, UsageError
from stream.keys import fingerprint
from stream.policy.document import Policy
from stream.release.stage import MECHANISMS
from stream.runners.agreement import Control
from stream.runners.contract import LossError
from stream.runners.replay_guard import ReplayGuard, entries_beyond
from stream.runners.site_form import standing_of
from stream.runners.snapshot import BEFORE, chains, is_known, open_snapshot
from stream.schemas import AUDIT, CONTROL, OBSERVATIONS, SNAPSHOT

COPY = Way(
    "put the records of the topic back from a mirror of it, partition by partition and in order, none left out",
    "none: nothing is released twice",
)
NEW_LEDGER = Way(
    "begin a new ledger: keep copies of the audit and private topics for their account, delete all topics, "
    "'tacet topics create', a new key ('tacet key create'), and 'tacet worker --from' behind the last released window",
    "budgets begin anew, and so does the privacy day at hand, which is paid for again; what was released so far is in "
    "the old account only: whoever reads both adds them up",
)
CONTROL_COPY = Way(
    "stop workers and ingests, 'tacet topics create' if the control topic is not there, and put its records back from "
    "a mirror of it, the last one of every key",
    "none: nothing is released twice; a policy that the mirror lacks has to be accepted once more",
)
RETIRED_KEY = Way(
    f"retire the key, which serves no other cluster, and {NEW_LEDGER.do}",
    NEW_LEDGER.price,
)
BROKERS_TIME = Way(
    f"'kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {OBSERVATIONS} --add-config "
    "message.timestamp.type=LogAppendTime', while neither workers nor ingests run",
    "none",
)


def kafka_findings(servers: str, key_file: Path | None, policy: Policy | None) -> list[Finding]:
    """Return what keeps workers from going on, as far as the topics, key and policy show."""
    found = asyncio.run(_findings(servers, key_file, policy))
    if not found:
        found += _of_books(servers)
    return found


async def _findings(servers: str, key_file: Path | None, policy: Policy | None) -> list[Finding]:
    counts = dict(await engine_counts(servers))
    if CONTROL not in counts and (bound := _cluster_of(key_file)):
        return [
            Finding(
                f"topic {CONTROL}: is not there, and the key belongs to cluster {bound}", (CONTROL_COPY, RETIRED_KEY)
            )
        ]
    missing = [name for name in (CONTROL, OBSERVATIONS, SNAPSHOT, AUDIT) if name not in counts]
    if missing:
        create = Way("'tacet topics create'", "none, if it is new; if it was deleted, what it held is gone")
        return [Finding(f"topic {name}: is not there", (create, COPY)) for name in missing]
    control = await read(servers)
    grown = [
        _grown(name, count, control.partitions)
        for name, count in sorted(counts.items())
        if name != CONTROL and control.partitions not in (None, count)
    ]
    keys = None if key_file is None else keyfile.FileKeys(key_file)
    found = [*grown, *await _of_stamps(servers), *_of_binding(control, _cluster_of(key_file))]
    found += _of_control(control, keys, policy)
    results = result_topics(counts, control.accepted())
    for partition in range(min(counts[OBSERVATIONS], counts[SNAPSHOT], counts[AUDIT])):
        found += await _of_partition(servers, partition, results, (keys, policy, control))
    return found


def _grown(topic: str, count: int, wanted: int | None) -> Finding:
    what = f"topic {topic}: has {count} partitions, the cluster {wanted}; Kafka cannot take any away"
    if topic == OBSERVATIONS:
        unread = Way(
            f"stop ingests and workers, copy what is unread of partitions 0 to {(wanted or 1) - 1} elsewhere ('tacet "
            "status' says which message is next), delete the topic, 'tacet topics create', copy it back in order, then "
            + ACCEPT_LOSS.do,
            "no message is lost; the windows up to the next heartbeat have coverage 0",
        )
        lossy = Way(f"the same without the copy: {ACCEPT_LOSS.do}", ACCEPT_LOSS.price)
        ending = Way(f"where these stop since an entry would now differ, {RETIRE.do}", RETIRE.price)
        return Finding(what, (unread, lossy, ending))
    copied = Way(
        f"stop the workers, copy partitions 0 to {(wanted or 1) - 1} elsewhere, delete the topic, "
        "'tacet topics create', and copy them back in order",
        "none: the partitions beyond hold nothing of this cluster's",
    )
    return Finding(what, (copied,))


async def _of_stamps(servers: str) -> list[Finding]:
    """Observations that their producers stamp, as release 0.1.0 made the topic."""
    try:
        await refuse_producers_time(servers)
    except UsageError as problem:
        return [Finding(str(problem), (BROKERS_TIME,))]
    return []


def _cluster_of(key_file: Path | None) -> str | None:
    """Return the id of the cluster that a production key serves for ever; None where it serves none."""
    bound = None if key_file is None or keyfile.is_laboratory(key_file) else keyfile.store_of(key_file)
    return bound.removeprefix("cluster ") if bound and bound.startswith("cluster ") else None


def _of_binding(control: Control, cluster: str | None) -> Iterator[Finding]:
    """A control topic that lacks the records of the cluster to which a production key is bound."""
    if cluster not in (None, control.id):
        here = "holds no cluster's record" if control.id is None else f"holds those of cluster {control.id}"
        yield Finding(
            f"the key belongs to cluster {cluster}, but topic {CONTROL} {here}: it was made anew, or it is another's",
            (Way("give the key of this cluster, or the cluster of this key", "none"), CONTROL_COPY, RETIRED_KEY),
        )


def _of_control(control: Control, keys: keyfile.FileKeys | None, policy: Policy | None) -> Iterator[Finding]:
    yield from of_key(control, keys)
    if control.announced is not None:
        yield Finding(
            f"mechanism version {control.announced} was announced and has not begun; until then no partition is taken",
            (
                Way(f"'tacet worker --accept-policy' of version {control.announced}", "none"),
                Way(f"'tacet worker' of version {control.mechanisms}, which takes the announcement back", "none"),
            ),
        )
    current = control.current()
    if policy is not None and current is not None and current != policy.version:
        again = f" --again {control.policies[current].order}" if policy.version in control.policies else ""
        yield Finding(
            f"the cluster works under policy {current}, the one given is {policy.version}",
            (
                Way("'tacet worker' with the policy of that version; the control topic keeps it", "none"),
                Way(
                    f"'tacet worker --accept-policy{again}', and all other workers with the new policy",
                    "groups, filters and the local day at hand begin anew; budgets and account go on",
                ),
            ),
        )


async def _of_partition(
    servers: str, partition: int, results: tuple[str, ...],
    given: tuple[keyfile.FileKeys | None, Policy | None, Control],
) -> list[Finding]:  # fmt: skip
    name = f"partition {partition}"
    committed, _ = await read_range(servers, AUDIT, partition, 0)  # before the state, which is written with them
    try:
        snapshot = await last_snapshot(servers, partition)
    except LossError as loss:
        return [Finding(str(loss), _without_snapshot(has_audit=True))]
    entries, _ = await read_range(servers, AUDIT, partition, 0, committed=False)
    used = await first_used(servers, results, partition)
    if snapshot is None:
        if entries and (alone := list(of_entries_alone(name, given[2].versions))):
            return alone
        if committed:
            what = f"{name}: the audit holds records, but there is no state: the snapshots were made anew"
            return [Finding(what, _without_snapshot(has_audit=True))]
        if entries or used is None:
            return []
        what = f"{name}: {used} holds records, but audit and snapshot hold none"
        return [Finding(what, (COPY, NEW_LEDGER))]
    head, sites = open_snapshot(snapshot)
    shut = [site for site, stages in sorted(sites.items()) if standing_of(stages).shut]
    found = [_closed(site) for site in shut]
    if head["audit"] and not entries:
        found.append(Finding(f"{name}: the audit records that its state knows of are gone", (COPY, NEW_LEDGER)))
    found += list(of_ended(name, head, given[2]))
    known = {site for policy in given[2].accepted() for site in policy.site}
    lost = ways_after_loss(entries_beyond(entries, chains(snapshot), known))
    found += list(of_version(name, snapshot, entries, known)) or made_by_version_before(name, snapshot)
    end = (await end_offsets(servers, OBSERVATIONS))[partition]  # after the state: workers may be at work
    if head["next"] > end:
        what = f"{name}: offset {head['next']} of the observations is next, but they end at {end}; they were made anew"
        found.append(Finding(what, lost))
    elif not await _same_log(servers, partition, snapshot, given):
        what = f"{name}: the observations hold another message than the one that was read last; they were made anew"
        found.append(Finding(what, lost))
    found += await of_next(servers, partition, head["next"], end)
    return found


def of_version(partition: str, snapshot: bytes, entries: Iterable[bytes], sites: Collection[str]) -> Iterator[Finding]:
    """A state that another mechanism version made, where this one may not go on from it."""
    version = open_snapshot(snapshot)[0]["mechanisms"]
    beyond = entries_beyond(entries, chains(snapshot), sites)
    if not is_known(version):
        yield Finding(
            f"{partition}: its state was made by mechanism version {version}, and this is {MECHANISMS}, which goes on "
            f"from {', '.join(BEFORE)} and its own only",
            (
                Way(
                    f"'tacet worker' of mechanism version {version}; if that is the older one, then of each version "
                    "between, with --accept-policy, until every partition's state is its own",
                    "groups, filters and the local day at hand begin anew with each change; budgets and account go on",
                ),
                NEW_LEDGER,
            ),
        )
    elif version != MECHANISMS and beyond:
        yield Finding(
            f"{partition}: {beyond} ledger entries lie beyond its state, which mechanism version {version} made; that "
            "version has to finish the windows that they begin",
            (
                Way(
                    f"start mechanism version {version} once more, under the same policy and key, until it has "
                    "released these windows and saved its state; then 'tacet worker --accept-policy' of this version",
                    f"the windows until then are released under version {version}; none is released twice",
                ),
                NEW_LEDGER,
            ),
        )


def of_entries_alone(partition: str, versions: Sequence[str]) -> Iterator[Finding]:
    """Entries without a state, where more than one mechanism version may have made them."""
    if any(version != MECHANISMS for version in versions):
        yield Finding(
            f"{partition}: there are ledger entries and no state, and mechanism versions {', '.join(versions)} have "
            "worked here, so that nobody can say which made them",
            (COPY, NEW_LEDGER),
        )


def made_by_version_before(partition: str, snapshot: bytes) -> list[Finding]:
    """Return what is to be said of a state that a mechanism version before this one has made."""
    if (version := open_snapshot(snapshot)[0]["mechanisms"]) not in BEFORE:
        return []
    accept = Way(
        "stop all workers of that version, then 'tacet worker --accept-policy'",
        "groups, filters and the local day at hand begin anew; that day's attributes are not published",
    )
    return [Finding(f"{partition}: its state was made by mechanism version {version}, this is {MECHANISMS}", (accept,))]


def _without_snapshot(*, has_audit: bool) -> tuple[Way, ...]:
    again = Way(
        "if the observations still reach back to the first window: 'tacet worker --accept-loss' under the same policy "
        "and key makes the same entries again",
        "none: anything that would come out differently stops the worker",
    )
    return (COPY, again, NEW_LEDGER) if has_audit else (COPY, NEW_LEDGER)


async def _same_log(
    servers: str, partition: int, snapshot: bytes, given: tuple[keyfile.FileKeys | None, Policy | None, Control]
) -> bool:
    """Return whether the log holds the message that the state read last; True where that is not known."""
    keys, (head, _) = given[0], open_snapshot(snapshot)
    last = head.get("last")
    if keys is None or last is None or head["key"] != fingerprint(keys):
        return True
    if last[0] < (await begin_offsets(servers, OBSERVATIONS))[partition]:
        return True
    message = await read_one(servers, OBSERVATIONS, partition, last[0])
    return message is not None and ReplayGuard(keys.audit, (last[0], last[1])).recognises(*message)


def _closed(site: str) -> Finding:
    return Finding(
        f"site {site}: is closed; it would have held more devices than max_devices",
        (
            Way(
                f"'tacet worker --reopen {site}', after a look at who sends so many addresses, or with a policy of a "
                "larger max_devices",
                "the windows it missed are released with coverage 0 and charged as any other; everybody counts from "
                "their next observation on",
            ),
        ),
    )


def _of_books(servers: str) -> list[Finding]:
    try:
        books = kafka_books(servers)
        books.audit().chains(books.entries)
    except (AuditError, DataError, UsageError) as problem:
        return [Finding(str(problem), (COPY, NEW_LEDGER))]
    return []
