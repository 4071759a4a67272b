"""Diagnosis of workers that cannot continue on a cluster, and their remedies: each with its price, none forks a
chain.

Findings concern the key (wrong or retired), the next message (written by a later version), the state (made by another
mechanism version), lost observations, an ended ledger, and settings of topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from connectors.keys import key_files
from connectors.keys.key_files import FileKeys
from connectors.operations.audit.kafka_bundle import kafka_bundle
from connectors.operations.audit.verification import compare
from connectors.operations.recovery.obstacles import NEW_LEDGER, REPUBLISH, Finding, Remedy, left_out
from connectors.storage.kafka.client import NotAllowedError
from connectors.storage.kafka.cluster import engine_counts, read
from connectors.storage.kafka.topic_readers import (
    begin_offsets,
    end_offsets,
    first_used,
    last_snapshot,
    read_first,
    read_one,
    read_range,
)
from connectors.storage.kafka.topics import dangerous_settings, result_topics
from stream.accounting.audit import by_release
from stream.encoding import heartbeat_of, later_sender_of
from stream.engine.cluster_state import ClusterState
from stream.engine.outputs import ReplayVerifier, entries_beyond
from stream.engine.ports import LossError
from stream.engine.snapshot import BEFORE, chains, is_known, open_snapshot, sensing_status
from stream.errors import AuditError, DataError, UsageError
from stream.keys import fingerprint
from stream.policy.document import PolicyDocument
from stream.records import Micros
from stream.release.stage import MECHANISMS
from stream.schemas import AUDIT, CONTROL, OBSERVATIONS, SNAPSHOT, rfc3339
from stream.sensing.state import SensingStatus

# Remedies.

RETIRE = Remedy(
    "stop ingests and workers, 'tacet key retire --kafka' with a new key ('tacet key create'), start them with that",
    "budgets and account go on; presence, groups and filters begin anew, and what was not read is lost; windows that "
    "were begun are charged as if they had been released, and never are",
)
ACCEPT_LOSS = Remedy(
    "'tacet worker --accept-loss' goes on from the first message that is there",
    "what was not read is lost for good: the windows up to the next heartbeat have coverage 0, and are charged",
)
FIRST = 1000
"""The number of messages that are searched for the first remaining heartbeat."""
_AGAIN = Remedy("'tacet key retire' once more, with the same keys", "none: what is done is passed by")
_THAT_VERSION = Remedy("upgrade the workers to the version of the ingests", "none: nothing was passed over")


def _without(partition: int, offset: int) -> Remedy:
    """Return how to continue without a message that no ingest wrote."""
    return Remedy(
        "if no ingest of yours wrote it, find out who may write observations ('tacet topics acls'); stop the workers, "
        f"'kafka-delete-records.sh' with offset {offset + 1} of partition {partition} of {OBSERVATIONS}, then "
        "'tacet worker --accept-loss'",
        "that message is gone; the windows up to the next heartbeat have coverage 0, and are charged",
    )


_ITS_KEY = Remedy("give the key of the ledger that goes on", "none")


async def price_of_loss(
    servers: str, partition: int, sites: Mapping[str, SensingStatus], ticks: Mapping[str, Micros]
) -> str:
    """Return which windows lose their coverage if the worker continues from the first existing message.

    ``sites`` are those of the partition's state, ``ticks`` the lengths of their windows.
    """
    beats: dict[str, Micros] = {}
    for value in await read_first(servers, OBSERVATIONS, partition, FIRST):
        if (beat := heartbeat_of(value)) is not None:
            beats.setdefault(beat.site, beat.watermark)
    windows = [
        _windows(site, at.last_window + ticks[site], beats.get(site), ticks[site])
        for site, at in sorted(sites.items())
        if at.last_window is not None and site in ticks
    ]
    return f"what was not read is lost for good; {'; '.join(windows) or 'no window has been begun'}"


def _windows(site: str, first: Micros, beat: Micros | None, tick: Micros) -> str:
    if beat is None:
        return (
            f"of site {site} the windows from the one that ends at {rfc3339(first)} up to the next heartbeat have "
            "coverage 0, and are charged"
        )
    last = -(-beat // tick) * tick
    if last < first:
        return f"of site {site} no whole window"
    return (
        f"of site {site} the {(last - first) // tick + 1:,} windows that end from {rfc3339(first)} to {rfc3339(last)} "
        "have coverage 0, and are charged"
    )


def remedies_after_loss(begun: int, price: str) -> tuple[Remedy, ...]:
    """Return the remedies for lost observations; windows that were begun may not be released without those."""
    accept = Remedy(ACCEPT_LOSS.do, price)
    if not begun:
        return (accept,)
    entries = f"{begun} ledger entries were published behind the state"
    return (accept, Remedy(f"{entries}: where that stops since one would now differ, {RETIRE.do}", RETIRE.price))


def of_key(control: ClusterState, keys: FileKeys | None) -> Iterator[Finding]:
    """Yield a finding if a key is not the cluster's, or no longer."""
    if keys is not None and keys.ledger in control.retired:
        yield Finding(f"the key is that of ledger {keys.ledger}, which has ended: it was retired", (_ITS_KEY,))
    elif keys is not None and control.key not in (None, fingerprint(keys)):
        what = "the key is not the one this cluster was begun with"
        yield Finding(what, (Remedy("give that key", "none"), RETIRE, NEW_LEDGER))


async def of_next(
    servers: str, partition: int, position: int, end: int, policies: Iterable[PolicyDocument]
) -> list[Finding]:
    """Return a finding if only a later version can read the next message."""
    message = await read_one(servers, OBSERVATIONS, partition, position) if position < end else None
    sender = None if message is None else later_sender_of(message[1])
    if sender is None or not any(
        sender.site in policy.site and sender.source in policy.site[sender.site].sources for policy in policies
    ):
        return []
    what = (
        f"partition {partition}: the message at offset {position} is of a later version, whose ingest wrote it for "
        f"source {sender.source} of site {sender.site}"
    )
    return [Finding(what, (_THAT_VERSION, _without(partition, position)))]


def of_ended(partition: str, head: Mapping[str, Any], control: ClusterState) -> Iterator[Finding]:
    """Yield a finding for a partition whose ledger has ended, if the following ledger has not begun."""
    if control.key not in (None, head["key"]):
        yield Finding(f"{partition}: its ledger has ended, and the partition has not been taken over", (_AGAIN,))


COPY = Remedy(
    "put the records of the topic back from a mirror of it, partition by partition and in order, none left out",
    "none: nothing is released twice",
)
NEW_CLUSTER_LEDGER = Remedy(
    "begin a new ledger: keep copies of the audit and private topics for their account, delete all topics, "
    "'tacet topics create', a new key ('tacet key create'), and 'tacet worker --from' behind the last released window",
    "budgets begin anew, and so does the privacy day at hand, which is paid for again; what was released so far is in "
    "the old account only: whoever reads both adds them up",
)
CONTROL_COPY = Remedy(
    "stop workers and ingests, 'tacet topics create' if the control topic is not there, and put its records back from "
    "a mirror of it, the last one of every key",
    "none: nothing is released twice; a policy that the mirror lacks has to be accepted once more",
)
RETIRED_KEY = Remedy(
    f"retire the key, which serves no other cluster, and {NEW_CLUSTER_LEDGER.do}",
    NEW_CLUSTER_LEDGER.price,
)
SETTING_PRICE = "none, while neither workers nor ingests run; what is gone already does not come back"


def kafka_findings(servers: str, key_file: Path | None, policy: PolicyDocument | None) -> list[Finding]:
    """Return what prevents workers from continuing, as far as topics, key and policy show."""
    found = asyncio.run(_findings(servers, key_file, policy))
    if not found:
        found += _audit_findings(servers)
    return found


async def _findings(servers: str, key_file: Path | None, policy: PolicyDocument | None) -> list[Finding]:
    counts = dict(await engine_counts(servers))
    if CONTROL not in counts and (bound := _cluster_of(key_file)):
        return [
            Finding(
                f"topic {CONTROL}: is not there, and the key belongs to cluster {bound}", (CONTROL_COPY, RETIRED_KEY)
            )
        ]
    missing = [name for name in (CONTROL, OBSERVATIONS, SNAPSHOT, AUDIT) if name not in counts]
    if missing:
        create = Remedy("'tacet topics create'", "none, if it is new; if it was deleted, what it held is gone")
        return [Finding(f"topic {name}: is not there", (create, COPY)) for name in missing]
    control = await read(servers)
    grown = [
        _grown(name, count, control.partitions)
        for name, count in sorted(counts.items())
        if name != CONTROL and control.partitions not in (None, count)
    ]
    keys = None if key_file is None else key_files.FileKeys(key_file)
    found = [
        *grown,
        *await _of_settings(servers, [policy] if policy else control.accepted()),
        *_of_binding(control, _cluster_of(key_file)),
    ]
    found += _of_control(control, keys, policy)
    results = result_topics(counts, control.accepted())
    for partition in range(min(counts[OBSERVATIONS], counts[SNAPSHOT], counts[AUDIT])):
        found += await _of_partition(servers, partition, results, (keys, policy, control))
    return found


def _grown(topic: str, count: int, wanted: int | None) -> Finding:
    what = f"topic {topic}: has {count} partitions, the cluster {wanted}; Kafka cannot take any away"
    if topic == OBSERVATIONS:
        unread = Remedy(
            f"stop ingests and workers, copy what is unread of partitions 0 to {(wanted or 1) - 1} elsewhere ('tacet "
            "status' says which message is next), delete the topic, 'tacet topics create', copy it back in order, then "
            + ACCEPT_LOSS.do,
            "no message is lost; the windows up to the next heartbeat have coverage 0",
        )
        lossy = Remedy(f"the same without the copy: {ACCEPT_LOSS.do}", ACCEPT_LOSS.price)
        ending = Remedy(f"where these stop since an entry would now differ, {RETIRE.do}", RETIRE.price)
        return Finding(what, (unread, lossy, ending))
    copied = Remedy(
        f"stop the workers, copy partitions 0 to {(wanted or 1) - 1} elsewhere, delete the topic, "
        "'tacet topics create', and copy them back in order",
        "none: the partitions beyond hold nothing of this cluster's",
    )
    return Finding(what, (copied,))


async def _of_settings(servers: str, policies: Iterable[PolicyDocument]) -> list[Finding]:
    """Settings of topics that workers refuse, for something would be lost or forked."""
    found = {fault: None for policy in policies for fault in await dangerous_settings(servers, policy)}
    return [Finding(str(fault), (Remedy(fault.remedy(), SETTING_PRICE),)) for fault in found]


def _cluster_of(key_file: Path | None) -> str | None:
    """Return the id of the cluster to which a production key is bound; None if it is not bound."""
    bound = None if key_file is None or key_files.is_laboratory(key_file) else key_files.store_of(key_file)
    return bound.removeprefix("cluster ") if bound and bound.startswith("cluster ") else None


def _of_binding(control: ClusterState, cluster: str | None) -> Iterator[Finding]:
    """Yield a finding for a control topic that lacks the records of the cluster to which a production key is bound."""
    if cluster not in (None, control.id):
        here = "holds no cluster's record" if control.id is None else f"holds those of cluster {control.id}"
        yield Finding(
            f"the key belongs to cluster {cluster}, but topic {CONTROL} {here}: it was made anew, or it is another's",
            (Remedy("give the key of this cluster, or the cluster of this key", "none"), CONTROL_COPY, RETIRED_KEY),
        )


def _of_control(
    control: ClusterState, keys: key_files.FileKeys | None, policy: PolicyDocument | None
) -> Iterator[Finding]:
    yield from of_key(control, keys)
    if control.announced is not None:
        yield Finding(
            f"mechanism version {control.announced} was announced and has not begun; until then no partition is taken",
            (
                Remedy(f"'tacet worker --accept-policy' of version {control.announced}", "none"),
                Remedy(f"'tacet worker' of version {control.mechanisms}, which takes the announcement back", "none"),
            ),
        )
    current = control.current()
    if policy is not None and current is not None and current != policy.version:
        again = f" --again {control.policies[current].order}" if policy.version in control.policies else ""
        yield Finding(
            f"the cluster works under policy {current}, the one given is {policy.version}",
            (
                Remedy("'tacet worker' with the policy of that version; the control topic keeps it", "none"),
                Remedy(
                    f"'tacet worker --accept-policy{again}', and all other workers with the new policy",
                    "groups, filters and the local day at hand begin anew; budgets and account go on",
                ),
            ),
        )


async def _of_partition(
    servers: str, partition: int, results: tuple[str, ...],
    given: tuple[key_files.FileKeys | None, PolicyDocument | None, ClusterState],
) -> list[Finding]:  # fmt: skip
    name = f"partition {partition}"
    committed, _ = await read_range(servers, AUDIT, partition, 0)  # before the state: both are one transaction
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
        return [Finding(what, (COPY, NEW_CLUSTER_LEDGER))]
    head, sites = open_snapshot(snapshot)
    shut = [site for site, stages in sorted(sites.items()) if sensing_status(stages).suspended]
    found = [_closed(site) for site in shut]
    if head["audit"] and not entries:
        found.append(Finding(f"{name}: the audit records that its state knows of are gone", (COPY, NEW_CLUSTER_LEDGER)))
    found += list(of_ended(name, head, given[2]))
    known = {site for policy in given[2].accepted() for site in policy.site}
    begun = entries_beyond(entries, chains(snapshot), known)
    found += list(of_version(name, snapshot, entries, known)) or state_of_earlier_version(name, snapshot)
    end = (await end_offsets(servers, OBSERVATIONS))[partition]  # read after the state, because workers may be running
    if (lost := await _loss(servers, partition, snapshot, end, given)) is not None:
        ticks = {name: site.tick for policy in given[2].accepted() for name, site in policy.site.items()}
        standings = {site: sensing_status(stages) for site, stages in sites.items()}
        found.append(
            Finding(lost, remedies_after_loss(begun, await price_of_loss(servers, partition, standings, ticks)))
        )
    found += await of_next(servers, partition, head["next"], end, given[2].accepted())
    return found


async def _loss(
    servers: str, partition: int, snapshot: bytes, end: int,
    given: tuple[key_files.FileKeys | None, PolicyDocument | None, ClusterState],
) -> str | None:  # fmt: skip
    """Return which observations are missing between a partition's state and the log; None if none are."""
    name, position = f"partition {partition}", open_snapshot(snapshot)[0]["next"]
    begin = (await begin_offsets(servers, OBSERVATIONS))[partition]
    if position < begin:
        return (
            f"{name}: offset {position} of the observations is next, but they begin at {begin}: {begin - position} "
            "messages expired, or were deleted, before they were read"
        )
    if position > end:
        return f"{name}: offset {position} of the observations is next, but they end at {end}; they were made anew"
    if not await _same_log(servers, partition, snapshot, given):
        return f"{name}: the observations hold another message than the one that was read last; they were made anew"
    return None


def of_version(partition: str, snapshot: bytes, entries: Iterable[bytes], sites: Collection[str]) -> Iterator[Finding]:
    """Yield a finding for a state of another mechanism version from which this version may not continue."""
    version = open_snapshot(snapshot)[0]["mechanisms"]
    beyond = entries_beyond(entries, chains(snapshot), sites)
    if not is_known(version):
        yield Finding(
            f"{partition}: its state was made by mechanism version {version}, and this is {MECHANISMS}, which goes on "
            f"from {' and '.join((*BEFORE, MECHANISMS))} only",
            (
                Remedy(
                    f"'tacet worker' of mechanism version {version}; if that is the older one, then of each version "
                    "between, with --accept-policy, until every partition's state is its own",
                    "groups, filters and the local day at hand begin anew with each change; budgets and account go on",
                ),
                NEW_CLUSTER_LEDGER,
            ),
        )
    elif version != MECHANISMS and beyond:
        yield Finding(
            f"{partition}: {beyond} ledger entries lie beyond its state, which mechanism version {version} made; that "
            "version has to finish the windows that they begin",
            (
                Remedy(
                    f"start mechanism version {version} once more, under the same policy and key, until it has "
                    "released these windows and saved its state; then 'tacet worker --accept-policy' of this version",
                    f"the windows until then are released under version {version}; none is released twice",
                ),
                NEW_CLUSTER_LEDGER,
            ),
        )


def of_entries_alone(partition: str, versions: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for entries without a state, if several mechanism versions may have made them."""
    if any(version != MECHANISMS for version in versions):
        yield Finding(
            f"{partition}: there are ledger entries and no state, and mechanism versions {', '.join(versions)} have "
            "worked here, so that nobody can say which made them",
            (COPY, NEW_CLUSTER_LEDGER),
        )


def state_of_earlier_version(partition: str, snapshot: bytes) -> list[Finding]:
    """Return the findings for a state that an earlier mechanism version has made."""
    if (version := open_snapshot(snapshot)[0]["mechanisms"]) not in BEFORE:
        return []
    accept = Remedy(
        "stop all workers of that version, then 'tacet worker --accept-policy'",
        "groups, filters and the local day at hand begin anew; that day's attributes are not published",
    )
    return [Finding(f"{partition}: its state was made by mechanism version {version}, this is {MECHANISMS}", (accept,))]


def _without_snapshot(*, has_audit: bool) -> tuple[Remedy, ...]:
    again = Remedy(
        "if the observations still reach back to the first window: 'tacet worker --accept-loss' under the same policy "
        "and key makes the same entries again",
        "none: anything that would come out differently stops the worker",
    )
    return (COPY, again, NEW_CLUSTER_LEDGER) if has_audit else (COPY, NEW_CLUSTER_LEDGER)


async def _same_log(
    servers: str,
    partition: int,
    snapshot: bytes,
    given: tuple[key_files.FileKeys | None, PolicyDocument | None, ClusterState],
) -> bool:
    """Return whether the log contains the message that the state read last; True if that is unknown."""
    keys, (head, _) = given[0], open_snapshot(snapshot)
    last = head.get("last")
    if keys is None or last is None or head["key"] != fingerprint(keys):
        return True
    if last[0] < (await begin_offsets(servers, OBSERVATIONS))[partition]:
        return True
    message = await read_one(servers, OBSERVATIONS, partition, last[0])
    return message is not None and ReplayVerifier(keys.audit, (last[0], last[1])).recognises(*message)


def _closed(site: str) -> Finding:
    return Finding(
        f"site {site}: is closed; it would have held more devices than max_devices",
        (
            Remedy(
                f"'tacet worker --reopen {site}', after a look at who sends so many addresses, or with a policy of a "
                "larger max_devices",
                "the windows it missed are released with coverage 0 and charged as any other; everybody counts from "
                "their next observation on",
            ),
        ),
    )


def _audit_findings(servers: str) -> list[Finding]:
    try:
        books = kafka_bundle(servers, records=True)
        books.audit().chains(books.entries)
        missing = by_release(compare(books).missing)
    except NotAllowedError:
        raise
    except (AuditError, DataError, UsageError) as problem:
        return [Finding(str(problem), (COPY, NEW_CLUSTER_LEDGER))]
    return [Finding(str(each), (COPY, REPUBLISH, left_out(each.audience))) for each in missing]
