"""Random policies that stay valid: a document to begin with, and at least one edit for every key that there is.

``EDITS`` maps each key, as ``Model.key`` of the models in ``stream.policy``, to the edits that change it. Which keys
there are is read off the models (``policy_keys``), so that a key without an edit is noticed.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from stream.errors import PolicyError
from stream.policy.document import PolicyDocument
from stream.policy.fields import Frozen
from stream.policy.forecasts import Forecast
from stream.policy.names import AttachedNames
from stream.policy.people import People
from stream.release.validation import Policy, validate

Document = dict[str, Any]
Elements = Callable[[Document], list[dict[str, Any]]]
"""Gives the tables of a document that an edit may change."""
Edit = Callable[[random.Random, Document], None]
SITE, OTHER_SITE = "dbh", "ics"
ZONES = ("a", "b", "c", "x")
TRIES = 200
"""After so many edits in a row that give no policy, something is wrong with the edits."""


class InapplicableError(Exception):
    """The document has nothing that the edit could change."""


def radio(zone: str) -> str:
    """Return the address of the access point of a zone."""
    return f"02:00:00:00:00:{1 + 'abcxmno'.index(zone):02x}"


def _zone(name: str, floor: str, kind: str) -> Document:
    return {"id": name, "floor": floor, "kind": kind, "capacity": 6, "access_points": [radio(name)]}


def _site() -> Document:
    return {
        "timezone": "America/Los_Angeles", "tick": "30min", "validity": "40min", "lateness": "30s",
        "sources": ["127.0.0.1", "127.0.0.2"], "working_hours": ["08:00", "18:00"],
        "day_starts": "04:00", "contribution": "3h",
        "zones": [_zone("a", "1", "hall"), _zone("b", "1", "hall"), _zone("c", "2", "hall"), _zone("x", "2", "office")],
    }  # fmt: skip


def _other_site() -> Document:
    zones = [_zone("m", "1", "hall"), _zone("n", "2", "hall"), _zone("o", "2", "office")]
    return _site() | {"zones": zones}


def _counts(name: str, mechanism: str, epsilon: dict[str, str], **more: Any) -> Document:
    held = {"name": name, "query": "count", "mechanism": mechanism, "zones": {"kind": "hall"}, "epsilon": epsilon}
    return held | more


RELEASES: dict[str, Document] = {
    "plain": _counts("plain", "laplace", {"facilities": "0.5", "board": "0.25"}, levels=["zone", "building"],
                     daily_budget={"board": "5"}, w_budget={"facilities": "5"},
                     queries=[{"name": "plain-sum", "kind": "window-sum", "windows": 3},
                              {"name": "plain-jump", "kind": "jump", "windows": 2, "threshold": 4}]),
    "grouped": _counts("grouped", "pegasus", {"public": "0.5"}, levels=["zone", "floor", "building"]),
    "by-day": _counts("by-day", "laplace", {"public": "2", "facilities": "4"}, unit="device_day", noise="gaussian",
                      levels=["floor", "building"], shares={"floor": "0.5", "building": "0.5"}),
    "smooth": _counts("smooth", "filter", {"public": "2"}, zones={"ids": ["a"]}, revise=["1h", "1d"]),
    "moving": _counts("moving", "ba", {"board": "1"}, w=6),
    "pruned": _counts("pruned", "pegasus", {"board": "2"}, levels=["zone", "building"],
                      shares={"zone": "0.5", "building": "0.5"}, prune={"share": "0.2", "below": 3}),
    "wings": _counts("wings", "laplace", {"public": "0.5"}, zones={"ids": ["a", "b", "c"]},
                     states={"west": ["a", "b"], "east": ["b", "c"]}),
    "office-day": {"name": "office-day", "query": "attributes", "zones": {"kind": "office"},
                   "attributes": {"arrival": {"epsilon": {"facilities": "1"}, "sensitive": {"after": "10:00"}},
                                  "occupancy_level": {"epsilon": {"facilities": "1"}, "sensitive": {"below": 0.3}}},
                   "model": {"joint": {"00": 0.25, "01": 0.25, "10": 0.25, "11": 0.25}}, "cap": 5.0},
    "crowded": {"name": "crowded", "query": "threshold", "zones": {"kind": "hall"}, "threshold": 4, "hysteresis": 1,
                "cooldown": "1h", "epsilon": {"public": "4", "board": "4"}},
    "crowded-too": {"name": "crowded-too", "query": "threshold", "zones": {"kind": "hall"}, "level": "floor",
                    "threshold": 5, "counts": "plain", "audience": "board"},
}  # fmt: skip
"""One release of every kind."""


CHANGES: Document = _counts(
    "moves", "filter", {"public": "2", "facilities": "4"}, zones={}, unit="device_day", noise="gaussian",
    count="changes", revise=["1d"], levels=["zone", "floor", "building"],
    shares={"zone": "0.25", "floor": "0.25", "building": "0.5"},
)  # fmt: skip
"""A release that counts changes; its site ignores residents."""


def first_document(rng: random.Random) -> Document:
    """Return a policy to begin with: one site, and some of the releases."""
    document = whole_document(by_day=rng.random() < 0.5)
    others = [each for each in document["release"] if each["name"] != "plain"]
    document["release"] = [document["release"][0], *rng.sample(others, 3)]
    return document


def whole_document(*, by_day: bool = True) -> Document:
    """Return a policy with a release of every kind; without ``by_day`` its site has no privacy days."""
    site, releases = _site(), [copy.deepcopy(release) for release in RELEASES.values()]
    if not by_day:
        _withdraw_the_day(site)
        releases = [each for each in releases if each["name"] not in ("by-day", "crowded")]
    audiences = [{"name": name} for name in ("facilities", "public", "board")]
    return {"site": {SITE: site}, "audience": audiences, "release": releases}


def policy_of(document: Document) -> Policy:
    """Return the policy that a document is; ValidationError or PolicyError where it is none."""
    return validate(parsed(document))


def parsed(document: Document) -> PolicyDocument:
    """Return a document whose guarantees are not checked; ValidationError if it breaks a rule of its form."""
    return PolicyDocument.model_validate(document)


def edited(rng: random.Random, document: Document, keys: Sequence[str] = ()) -> tuple[str, Document, Policy]:
    """Return (key, document, policy) of a document in which one key is another, one of those given or any.

    Raises:
        InapplicableError: no edit of these keys gives a policy here.
    """
    before = policy_of(document)
    for _ in range(TRIES):
        chosen = rng.choice(keys or sorted(EDITS))
        made = copy.deepcopy(document)
        try:
            rng.choice(EDITS[chosen])(rng, made)
            policy = policy_of(made)
        except (InapplicableError, ValidationError, PolicyError):
            continue
        if policy != before:
            return chosen, made, policy
    raise InapplicableError(", ".join(keys))


# ---- which keys there are -----------------------------------------------------------------------------


def policy_keys() -> set[str]:
    """Return every key of the policy file, as ``Model.key``, without people, forecasts and names from another file.

    Estimates of people and forecasts are computed from published records alone
    (``tests/unit/people/test_people_release.py``, ``tests/unit/forecasts/test_forecast_release.py``). Names
    from a file are for display alone, and are no part of the policy's version (``tests/unit/policy/test_names.py``).
    """
    apart: frozenset[type[Frozen]] = frozenset({People, Forecast, AttachedNames})
    models = _models(PolicyDocument, set(apart)) - apart
    keys = {f"{_name(model)}.{name}" for model in models for name in model.model_fields}
    return keys - {"Policy.people", "Policy.forecast", "Site.names"}


def _name(model: type[Frozen]) -> str:
    return "Policy" if model is PolicyDocument else model.__name__


def _models(model: type[Frozen], known: set[type[Frozen]]) -> set[type[Frozen]]:
    if model not in known:
        known.add(model)
        for field in model.model_fields.values():
            for found in _within(field.annotation):
                _models(found, known)
    return known


def _within(annotation: Any) -> Iterator[type[Frozen]]:
    if isinstance(annotation, type) and issubclass(annotation, Frozen):
        yield annotation
    for part in get_args(annotation):
        yield from _within(part)


# ---- where edits apply --------------------------------------------------------------------------------


def _policy(document: Document) -> list[Document]:
    return [document]


def _sites(document: Document) -> list[Document]:
    return [*document["site"].values()]


def _zones(document: Document) -> list[Document]:
    return [zone for site in _sites(document) for zone in site["zones"]]


def _table(name: str) -> Elements:
    return lambda document: [document.setdefault(name, {})]


def _releases(query: str, *having: str) -> Elements:
    def found(document: Document) -> list[Document]:
        return [each for each in document["release"] if each["query"] == query and all(name in each for name in having)]

    return found


def _inside(elements: Elements, name: str) -> Elements:
    """Return the tables, or the rows of lists, that stand under a key."""

    def found(document: Document) -> list[Document]:
        held = [each[name] for each in elements(document) if name in each]
        return [row for each in held for row in (each if isinstance(each, list) else [each])]

    return found


def _set(elements: Elements, changes: Sequence[Document]) -> Edit:
    """Return the edit that gives some keys of one table other values; None takes a key out."""

    def edit(rng: random.Random, document: Document) -> None:
        found = elements(document)
        if not found:
            raise InapplicableError
        element = rng.choice(found)
        for name, value in rng.choice(changes).items():
            if value is None:
                element.pop(name, None)
            else:
                element[name] = copy.deepcopy(value)

    return edit


def _to(elements: Elements, key: str, *values: Any) -> Edit:
    return _set(elements, tuple({key: value} for value in values))


def _withdraw_the_day(site: Document) -> None:
    for name in ("day_starts", "contribution", "residents", "visits", "gap"):
        site.pop(name, None)


def _turn_the_day(rng: random.Random, document: Document) -> None:
    """Let a site's privacy days begin at another time, or give it some, or take them away."""
    site = rng.choice(_sites(document))
    if "day_starts" in site and rng.random() < 0.5:
        _withdraw_the_day(site)
    else:
        site["day_starts"] = rng.choice(["04:00", "00:00", "11:00", "16:30"])
        site.setdefault("contribution", "3h")


def _toggle_site(rng: random.Random, document: Document) -> None:
    held = document["site"]
    for name, made in ((SITE, _site), (OTHER_SITE, _other_site)):
        if name in held and len(held) > 1 and rng.random() < 0.5:
            del held[name]
            return
        if name not in held:
            held[name] = made()
            return


def _toggle_release(rng: random.Random, document: Document) -> None:
    held = {each["name"] for each in document["release"]}
    name = rng.choice(sorted(RELEASES))
    if name in held:
        document["release"] = [each for each in document["release"] if each["name"] != name]
    else:
        document["release"].insert(rng.randrange(len(held) + 1), copy.deepcopy(RELEASES[name]))


def _rename(elements: Elements) -> Edit:
    def edit(rng: random.Random, document: Document) -> None:
        found = elements(document)
        if not found:
            raise InapplicableError
        each = rng.choice(found)
        each["name"] = each["name"].removesuffix("-2") if each["name"].endswith("-2") else each["name"] + "-2"

    return edit


def _rename_audience(rng: random.Random, document: Document) -> None:
    """Give an audience another name everywhere."""
    old = rng.choice(document["audience"])["name"]
    new = old.removesuffix("-2") if old.endswith("-2") else old + "-2"

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {new if name == old else name: renamed(each) for name, each in value.items()}
        return [renamed(each) for each in value] if isinstance(value, list) else new if value == old else value

    document.update(renamed(document))


def _rename_zone(rng: random.Random, document: Document) -> None:
    zone = rng.choice(_zones(document))
    zone["id"] = zone["id"].removesuffix("-2") if zone["id"].endswith("-2") else zone["id"] + "-2"


def _move_radio(rng: random.Random, document: Document) -> None:
    """Let an access point belong to another zone of its site, or come and go."""
    zones = rng.choice(_sites(document))["zones"]
    giver, taker = rng.choice(zones), rng.choice(zones)
    if not giver.get("access_points"):
        raise InapplicableError
    if giver is taker:
        spare = f"02:00:00:00:01:{rng.randrange(16):02x}"
        giver["access_points"] = sorted({spare} ^ set(giver["access_points"]))
    else:
        taker.setdefault("access_points", []).append(giver["access_points"].pop())


def _rearrange_zones(rng: random.Random, document: Document) -> None:
    """Let zones stand in another order, or one be gone for a time."""
    zones = rng.choice(_sites(document))["zones"]
    if rng.random() < 0.5:
        rng.shuffle(zones)
    else:
        del zones[rng.randrange(len(zones))]


def _toggle_feed(rng: random.Random, document: Document) -> None:
    site = rng.choice(_sites(document))
    if site.get("feed") == "counts":
        fresh = _site()
        del site["feed"]
        site.pop("zeros", None)
        site |= {name: fresh[name] for name in ("sources", "validity")}
        for zone in site["zones"]:
            zone["access_points"] = [radio(zone["id"][0])]
    else:
        site["feed"] = "counts"
        of_devices = ("sources", "validity", "presence", "session_limit", "max_devices", "residents", "visits", "gap")
        for name in (*of_devices, "randomised", "opt_out", "probe"):
            site.pop(name, None)
        for zone in site["zones"]:
            for name in ("access_points", "base_radio", "access_point_names"):
                zone.pop(name, None)


def _toggle_presence(rng: random.Random, document: Document) -> None:
    """Let stays last until a message ends them, or for a while after each."""
    site = rng.choice(_sites_of_devices(document))
    if site.pop("presence", "events") == "sessions":
        site.pop("session_limit", None)
        site["validity"] = "40min"
    else:
        site.pop("validity", None)
        site |= {"presence": "sessions", "session_limit": rng.choice(["1h", "4h"])}


def _limit_sessions(rng: random.Random, document: Document) -> None:
    """Change how long a stay without a message lasts; a site of events becomes one of sessions."""
    site = rng.choice(_sites_of_devices(document))
    site.pop("validity", None)
    site |= {"presence": "sessions", "session_limit": rng.choice(["61min", "3h", "12h"])}


def _change_validity(rng: random.Random, document: Document) -> None:
    """Change how long an event counts; a site of sessions becomes one of events."""
    site = rng.choice(_sites_of_devices(document))
    for name in ("presence", "session_limit"):
        site.pop(name, None)
    site["validity"] = rng.choice(["25min", "40min", "70min"])


def _sites_of_devices(document: Document) -> list[Document]:
    sites = [site for site in _sites(document) if site.get("feed") != "counts"]
    if not sites:
        raise InapplicableError
    return sites


def _toggle_zeros(rng: random.Random, document: Document) -> None:
    """Change what a counter's missing rows mean; a site of devices becomes one of counters."""
    site = rng.choice(_sites(document))
    if site.get("feed") != "counts":
        _toggle_feed(rng, {"site": {"only": site}})
        site["zeros"] = "omitted"
    else:
        site["zeros"] = "reported" if site.get("zeros") == "omitted" else "omitted"


def _toggle_epsilon(choices: tuple[str, ...], elements: Elements) -> Edit:
    """Change an audience's price, give the release to one more audience, or to one less."""

    def edit(rng: random.Random, document: Document) -> None:
        found = elements(document)
        if not found:
            raise InapplicableError
        held = rng.choice(found)["epsilon"]
        name = rng.choice([each["name"] for each in document["audience"]])
        if name in held and len(held) > 1 and rng.random() < 0.4:
            del held[name]
        else:
            held[name] = rng.choice(choices)

    return edit


def _price_of_runs(rng: random.Random, document: Document) -> None:
    """All audiences of a stream pay one price."""
    found = _releases("threshold", "epsilon")(document)
    if not found:
        raise InapplicableError
    each, price = rng.choice(found), rng.choice(["2", "4", "8"])
    each["epsilon"] = dict.fromkeys(rng.sample(["facilities", "public", "board"], rng.randrange(1, 4)), price)
    if each.get("unit") == "run":
        each["daily_budget"] = dict.fromkeys(each["epsilon"], "16")


def _pay_by_run(rng: random.Random, document: Document) -> None:
    found = _releases("threshold", "epsilon")(document)
    if not found:
        raise InapplicableError
    each = rng.choice(found)
    if each.pop("unit", None) == "run":
        del each["daily_budget"]
    else:
        each |= {"unit": "run", "daily_budget": dict.fromkeys(each["epsilon"], rng.choice(["8", "16"]))}


def _shuffle_sites_sources(rng: random.Random, document: Document) -> None:
    site = rng.choice(_sites(document))
    if not site.get("sources") or site.get("probe"):
        raise InapplicableError
    site["sources"] = rng.choice([["127.0.0.1"], ["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"]])


def _order_floors(rng: random.Random, document: Document) -> None:
    site = rng.choice(_sites(document))
    floors = sorted({zone.get("floor", "1") for zone in site["zones"]})
    if site.pop("floors", None) is None:
        site["floors"] = rng.sample(floors, len(floors))


# ---- the edits ----------------------------------------------------------------------------------------

_COUNTS, _STREAMS, _DAYS = _releases("count"), _releases("threshold"), _releases("attributes")
_BY_DAY, _PRIVACY = _releases("count", "unit"), _table("privacy")
_RULES = _inside(_DAYS, "attributes")


def _arrival(document: Document) -> list[Document]:
    return [each["arrival"] for each in _RULES(document) if "arrival" in each]


def _occupancy_level(document: Document) -> list[Document]:
    return [each["occupancy_level"] for each in _RULES(document) if "occupancy_level" in each]


_MODEL = {"joint": {"00": 0.4, "01": 0.2, "10": 0.2, "11": 0.2}}
_CUT = {"joint": {"00": 0.4, "01": 0.2, "10": 0.2, "11": 0.2}, "cuts": {"arrival": ["10:01"]}}
_NO_MODEL = {"model": None, "cap": None, "guard": None, "information_target": None}
_BOOKED = [{"zone": "a", "day": "mon", "start": "08:00", "end": "18:00"}]
_THRESHOLDS = {"threshold": None, "thresholds": None, "of_capacity": None}
_PROBE = {"source": "127.0.0.1", "by": "snmp"}


def _polled(**more: Any) -> Document:
    """Return a poll of a source, and the probe that it needs."""
    return {"probe": [_PROBE], "poll": [{"source": "127.0.0.1", "by": "cisco-lwapp"} | more]}


_UNPOLLED: Document = {"poll": None}
_GAUSSIAN = {
    "unit": "device_day", "noise": "gaussian", "mechanism": "laplace", "daily_budget": None, "w_budget": None,
    "queries": None, "states": None, "prune": None, "w": None, "refresh": None,
}  # fmt: skip
_BY_WINDOW = {"unit": None, "noise": None, "delta": None}
_ZONES_ALONE = {"levels": ["zone"], "shares": None}
_WHOLE = {"zones": None, "levels": ["zone", "building"], "shares": {"zone": "0.5", "building": "0.5"}}


def _count_changes(**keys: Sequence[Any]) -> Edit:
    """Let a release count changes, or ticks if it does; give a site one value of each of these keys."""

    def edit(rng: random.Random, document: Document) -> None:
        found = _COUNTS(document)
        if not found:
            raise InapplicableError
        each = next((each for each in found if each.get("count") == "changes"), None)
        if each is not None and not keys:
            del each["count"]
            return
        each = each or rng.choice(found)
        each |= _GAUSSIAN | {"mechanism": "filter", "count": "changes", "revise": None}
        each |= rng.choice([_ZONES_ALONE, _WHOLE])
        for name in [name for name, value in each.items() if value is None]:
            del each[name]
        for site in _sites(document):
            site.update({"residents": "ignore"} | {key: rng.choice(values) for key, values in keys.items()})

    return edit


def count_logins(rng: random.Random, document: Document) -> None:
    """Let a site of devices count logins; what is not paid for by the day goes."""
    _count_logins(others=("ignore", "count"))(rng, document)


_LOGINS = ("identity", "login_attribute", "home_realms", "shared_logins", "others")


def _count_logins(**keys: Sequence[Any]) -> Edit:
    """Let a site count logins, or devices if it does; give it one value of each of these keys."""

    def edit(rng: random.Random, document: Document) -> None:
        site = rng.choice(_sites_of_devices(document))
        counts_logins = "identity" in site
        for name in _LOGINS:
            site.pop(name, None)
        if counts_logins and not keys:
            return
        site.update({"identity": "login"} | {key: rng.choice(values) for key, values in keys.items()})
        document["release"] = [made for each in document["release"] if (made := _paid_by_the_day(each)) is not None]

    return edit


def _paid_by_the_day(release: Document) -> Document | None:
    """Return a release that a site of logins may have in place of another; None for one that it may not have."""
    if release["query"] == "count" and release.get("unit") != "device_day":
        kept = {key: release[key] for key in ("name", "query", "zones", "epsilon") if key in release}
        return kept | {"mechanism": "laplace", "noise": "gaussian", "unit": "device_day"}
    return release if release["query"] == "count" or "epsilon" in release else None


EDITS: dict[str, tuple[Edit, ...]] = {
    "Policy.site": (_toggle_site,),
    "Policy.audience": (
        lambda rng, document: document["audience"].reverse(),
        lambda rng, document: document["audience"].append({"name": f"guest{rng.randrange(100)}"}),
    ),
    "Policy.release": (_toggle_release, lambda rng, document: rng.shuffle(document["release"])),
    "Policy.privacy": (_to(_policy, "privacy", None, {"devices_per_person": 2}, {"w": 24}),),
    "Policy.pseudonym": (_to(_policy, "pseudonym", None, {"ttl": "6h"}),),
    "Policy.restricted": (_to(_policy, "restricted", None, {"presence": True}, {"occupancy": True}),),
    "Pseudonyms.ttl": (_to(_table("pseudonym"), "ttl", None, "2h", "1d"),),
    "Restricted.presence": (_to(_table("restricted"), "presence", True, False),),
    "Restricted.occupancy": (_to(_table("restricted"), "occupancy", True, False),),
    "Audience.name": (_rename_audience,),
    "Audience.description": (_to(lambda document: document["audience"], "description", "who looks", "others"),),
    "Audience.public": (_to(lambda document: document["audience"], "public", True, False),),
    # sites
    "Site.name": (_to(_sites, "name", "Hall", "Tower"),),
    "Site.feed": (_toggle_feed,),
    "Site.zeros": (_toggle_zeros,),
    "Site.timezone": (_to(_sites, "timezone", "America/Los_Angeles", "America/Denver", "Asia/Kolkata", "UTC"),),
    "Site.tick": (_to(_sites, "tick", "20min", "30min", "30min", "60min"),),
    "Site.presence": (_toggle_presence,),
    "Site.validity": (_change_validity,),
    "Site.session_limit": (_limit_sessions,),
    "Site.lateness": (_to(_sites, "lateness", "10s", "30s", "4min"),),
    "Site.max_devices": (_to(_sites, "max_devices", 500, 1000, None),),
    "Site.working_hours": (_to(_sites, "working_hours", ["08:00", "18:00"], ["06:00", "22:00"]),),
    "Site.day_starts": (_turn_the_day,),
    "Site.contribution": (_to(_sites, "contribution", "90min", "3h", "1d"),),
    "Site.residents": (_to(_sites, "residents", "ignore", "count"),),
    "Site.visits": (_count_changes(visits=(2, 3, 4)),),
    "Site.gap": (_count_changes(gap=("10min", "30min", "60min")),),
    "Site.randomised": (_to(_sites_of_devices, "randomised", "ignore", "count"),),
    "Site.opt_out": (_to(_sites_of_devices, "opt_out", "list", "none"),),
    "Site.identity": (_count_logins(),),
    "Site.login_attribute": (_count_logins(login_attribute=("user_name", "chargeable_user_identity")),),
    "Site.home_realms": (_count_logins(home_realms=(["example.org"], ["example.org", "EXAMPLE"])),),
    "Site.shared_logins": (_count_logins(shared_logins=(["lab"], ["bert"])),),
    "Site.others": (_count_logins(others=("ignore", "count")),),
    "Site.sources": (_shuffle_sites_sources,),
    "Site.zones": (_rearrange_zones,),
    "Site.floors": (_order_floors,),
    "Site.probe": (_to(_sites, "probe", [_PROBE], None),),
    "Zone.id": (_rename_zone,),
    "Zone.floor": (_to(_zones, "floor", "1", "2", "3"),),
    "Zone.kind": (_to(_zones, "kind", "hall", "office", "lab"),),
    "Zone.capacity": (_to(_zones, "capacity", 4, 6, 9),),
    "Zone.max_count": (_to(_zones, "max_count", 30, 50, None),),
    "Zone.access_points": (_move_radio,),
    "Zone.base_radio": (_to(_zones, "base_radio", ["24:de:c6:cc:dd:e0/44"], None),),
    "Zone.access_point_names": (_to(_zones, "access_point_names", ["AP1"], ["AP2"], None),),
    "Zone.metadata": (_to(_zones, "metadata", {"name": "Hall"}, {"brick": "brick:Room"}, None),),
    "Probe.source": (_to(_sites, "probe", [_PROBE], [_PROBE | {"source": "127.0.0.2"}]),),
    "Probe.by": (
        _set(_sites, ({"probe": [{"source": "127.0.0.1", "by": "icmp"}]}, {"probe": [_PROBE]})),
    ),
    "Probe.port": (_to(_sites, "probe", [_PROBE | {"port": 1161}], [_PROBE]),),
    "Probe.user": (_to(_sites, "probe", [_PROBE | {"user": "monitor"}], [_PROBE]),),
    "Probe.wrong_community": (_to(_sites, "probe", [_PROBE | {"wrong_community": True}], [_PROBE]),),
    "Probe.name": (_to(_sites, "probe", [{"source": "127.0.0.1", "by": "https", "name": "wlc.example.org"}], None),),
    "Probe.fingerprint": (
        _to(_sites, "probe", [{"source": "127.0.0.1", "by": "https", "fingerprint": "ab" * 32}], None),
    ),
    "Site.poll": (_set(_sites, (_polled(), _UNPOLLED)),),
    "Poll.source": (_set(_sites, (_polled(), _UNPOLLED)),),
    "Poll.by": (_set(_sites, (_polled(by="aruba"), _polled())),),
    "Poll.port": (_set(_sites, (_polled(port=1161), _polled())),),
    "Poll.user": (_set(_sites, (_polled(user="monitor"), _polled())),),
    "Poll.interval": (_set(_sites, (_polled(interval="10min"), _polled())),),
    # adversaries and persons
    "Privacy.devices_per_person": (_to(_PRIVACY, "devices_per_person", 1, 2, 3),),
    "Privacy.max_factor": (_to(_PRIVACY, "max_factor", 20.5, 1000.0, 1e9),),
    "Privacy.ticks_per_attribute": (_to(_PRIVACY, "ticks_per_attribute", 1, 6, 12),),
    "Privacy.w": (_to(_PRIVACY, "w", 6, 12, 24),),
    "Privacy.delta": (_to(_PRIVACY, "delta", "1e-6", "1e-7"),),
    "Privacy.factor_delta": (_to(_PRIVACY, "factor_delta", "1e-6", "1e-4", None),),
    "Privacy.mobility": (_to(_PRIVACY, "mobility", {"forward": [[0.9, 0.1], [0.1, 0.9]]}, None),),
    "Privacy.meetings": (_to(_PRIVACY, "meetings", [{"size": 3, "correlation": 0.5, "presence": 0.2}], None),),
    "Mobility.forward": (_to(_PRIVACY, "mobility", {"forward": [[0.8, 0.2], [0.5, 0.5]]}),),
    "Meeting.size": (_to(_PRIVACY, "meetings", [{"size": 4, "correlation": 0.5, "presence": 0.2}]),),
    "Meeting.correlation": (_to(_PRIVACY, "meetings", [{"size": 3, "correlation": 0.9, "presence": 0.2}]),),
    "Meeting.presence": (_to(_PRIVACY, "meetings", [{"size": 3, "correlation": 0.5, "presence": 0.4}]),),
    # counts
    "CountRelease.name": (_rename(_COUNTS),),
    "CountRelease.query": (_toggle_release,),
    "CountRelease.mechanism": (
        _to(_COUNTS, "mechanism", "laplace", "pegasus", "filter"),
        _set(_releases("count", "w"), tuple({"mechanism": name} for name in ("uniform", "sample", "ba"))),
    ),
    "CountRelease.smoother": (_to(_COUNTS, "smoother", "average", "median", "james-stein"),),
    "CountRelease.calendar": (_to(_COUNTS, "calendar", True, False),),
    "CountRelease.noise": (_to(_BY_DAY, "noise", "laplace", "gaussian"),),
    "CountRelease.unit": (_set(_COUNTS, (_GAUSSIAN, _BY_WINDOW)),),
    "CountRelease.count": (_count_changes(),),
    "CountRelease.delta": (_to(_BY_DAY, "delta", "1e-5", "1e-7", None),),
    "CountRelease.zones": (_to(_COUNTS, "zones", {"kind": "hall"}, {"kind": ["hall", "office"]}, {"floor": "1"}),),
    "CountRelease.states": (
        _to(_releases("count", "states"), "states", {"west": ["a"], "east": ["b", "c"]}, {"all": ["a", "b", "c"]}),
    ),
    "CountRelease.levels": (_to(_COUNTS, "levels", ["zone"], ["zone", "floor"], ["zone", "floor", "building"]),),
    "CountRelease.shares": (
        _set(_COUNTS, ({"levels": ["zone", "building"], "shares": {"zone": "0.5", "building": "0.5"}},
                       {"levels": ["zone", "building"], "shares": {"zone": "0.8", "building": "0.2"}},
                       {"levels": ["zone"], "shares": None, "prune": None})),
    ),
    "CountRelease.prune": (_to(_releases("count", "shares"), "prune", {"share": "0.2", "below": 3}, None),),
    "CountRelease.w": (
        _to(_releases("count", "w"), "w", 4, 6, 12),
        _set(_COUNTS, ({"mechanism": "ba", "w": 6, "levels": ["zone"], "w_budget": None, "shares": None},)),
    ),
    "CountRelease.queries": (
        _to(_COUNTS, "queries", None, [{"name": "lows", "kind": "low", "windows": 2, "threshold": 1}],
            [{"name": "heat", "kind": "heatmap", "windows": 2}]),
    ),
    "CountRelease.revise": (_to(_COUNTS, "revise", None, ["1h"], ["1h", "1d"]),),
    "CountRelease.epsilon": (_toggle_epsilon(("0.3", "0.5", "1", "2"), _COUNTS),),
    "CountRelease.daily_budget": (
        _to(_COUNTS, "daily_budget", None, {"public": "4"}, {"board": "3"}, {"facilities": "8"}),
    ),
    "CountRelease.refresh": (_to(_releases("count", "daily_budget"), "refresh", "1d", "2d"),),
    "CountRelease.w_budget": (_to(_COUNTS, "w_budget", None, {"public": "4"}, {"board": "3"}, {"facilities": "8"}),),
    "Pruning.share": (_to(_inside(_COUNTS, "prune"), "share", "0.1", "0.3"),),
    "Pruning.below": (_to(_inside(_COUNTS, "prune"), "below", 1, 5),),
    "Selection.kind": (_to(_COUNTS, "zones", {"kind": "hall"}, {"kind": "lab"}, {"kind": ["hall", "lab"]}),),
    "Selection.floor": (_to(_COUNTS, "zones", {"floor": "1"}, {"floor": ["1", "2"]}),),
    "Selection.ids": (_to(_COUNTS, "zones", {"ids": ["a"]}, {"ids": ["b", "c"]}),),
    "Query.name": (_rename(_inside(_COUNTS, "queries")),),
    "Query.kind": (_to(_inside(_COUNTS, "queries"), "kind", "jump", "low"),),
    "Query.windows": (_to(_inside(_COUNTS, "queries"), "windows", 2, 3, 4),),
    "Query.threshold": (_to(_inside(_COUNTS, "queries"), "threshold", 2, 3, 6),),
    # attributes
    "AttributeRelease.name": (_rename(_DAYS),),
    "AttributeRelease.query": (_toggle_release,),
    "AttributeRelease.mechanism": (_toggle_release,),
    "AttributeRelease.zones": (_to(_DAYS, "zones", {"kind": "office"}, {"floor": "2"}, {}),),
    "AttributeRelease.absent": (_to(_DAYS, "absent", "public", "sensitive"),),
    "AttributeRelease.attributes": (
        _set(_DAYS, tuple(_NO_MODEL | {"attributes": {name: rule}} for name, rule in (
            ("departure", {"epsilon": {"public": "1"}, "sensitive": {"after": "20:00"}}),
            ("breaks", {"epsilon": {"facilities": "2"}, "sensitive": {"above": 3}}),
        ))),
        _set(_DAYS, (RELEASES["office-day"] | {"name": "office-day"},)),
    ),
    "AttributeRelease.model": (_to(_DAYS, "model", _MODEL, _CUT), _set(_DAYS, (_NO_MODEL,))),
    "AttributeRelease.cap": (_to(_DAYS, "cap", 0.5, 2.0, 9.0, None),),
    "AttributeRelease.guard": (_to(_DAYS, "guard", "adaptive", "static"),),
    "AttributeRelease.days_per_month": (_to(_DAYS, "days_per_month", 1, 5, None),),
    "AttributeRelease.information_target": (_to(_DAYS, "information_target", 0.5, None),),
    "Attribute.epsilon": (_toggle_epsilon(("0.5", "1", "2"), _arrival),),
    "Attribute.sensitive": (_to(_arrival, "sensitive", {"after": "09:00"}, {"after": "10:00", "before": "06:00"}),),
    "Sensitive.after": (_to(_inside(_arrival, "sensitive"), "after", "09:30", "10:00"),),
    "Sensitive.before": (_to(_inside(_arrival, "sensitive"), "before", "05:00", "07:00"),),
    "Sensitive.above": (_to(_inside(_occupancy_level, "sensitive"), "above", 0.8, 0.9),),
    "Sensitive.below": (_to(_inside(_occupancy_level, "sensitive"), "below", 0.2, 0.3),),
    "AttributeModel.joint": (_to(_inside(_DAYS, "model"), "joint", _MODEL["joint"],
                                 {"00": 0.1, "01": 0.2, "10": 0.3, "11": 0.4}),),
    "AttributeModel.cuts": (_to(_inside(_DAYS, "model"), "cuts", {"arrival": ["10:01"]}, {}),),
    # thresholds
    "ThresholdRelease.name": (_rename(_STREAMS),),
    "ThresholdRelease.query": (_toggle_release,),
    "ThresholdRelease.alert": (_to(_STREAMS, "alert", "above", "below"),),
    "ThresholdRelease.zones": (_to(_STREAMS, "zones", {"kind": "hall"}, {"floor": "1"}, {"ids": ["a", "b"]}),),
    "ThresholdRelease.level": (_to(_STREAMS, "level", "zone", "floor", "building"),),
    "ThresholdRelease.threshold": (_to(_releases("threshold", "threshold"), "threshold", 2, 4, 6),),
    "ThresholdRelease.thresholds": (
        _set(_STREAMS, (_THRESHOLDS | {"level": "building", "thresholds": {"building": 9}},
                        _THRESHOLDS | {"threshold": 4})),
    ),
    "ThresholdRelease.of_capacity": (_set(_STREAMS, (_THRESHOLDS | {"of_capacity": "0.5"},)),),
    "ThresholdRelease.miss": (_to(_STREAMS, "miss", "0.05", "0.1"),),
    "ThresholdRelease.within": (_to(_STREAMS, "within", "1h", "2h", None),),
    "ThresholdRelease.hysteresis": (_to(_STREAMS, "hysteresis", 0, 2, None),),
    "ThresholdRelease.cooldown": (_to(_STREAMS, "cooldown", "30min", "2h"),),
    "ThresholdRelease.events": (_to(_releases("threshold", "epsilon"), "events", 1, 3),),
    "ThresholdRelease.schedule": (_set(_STREAMS, ({"schedule": _BOOKED, "level": "zone"}, {"schedule": None})),),
    "ThresholdRelease.unit": (_pay_by_run,),
    "ThresholdRelease.epsilon": (_price_of_runs,),
    "ThresholdRelease.daily_budget": (
        _set(_releases("threshold", "epsilon"),
             tuple({"unit": "run", "epsilon": {"public": "2"}, "daily_budget": {"public": n}} for n in ("4", "9"))),
    ),
    "ThresholdRelease.counts": (
        _set(_releases("threshold", "counts"), ({"counts": "plain", "audience": "board"},
                                                {"counts": "grouped", "audience": "public"})),
    ),
    "ThresholdRelease.audience": (_to(_releases("threshold", "counts"), "audience", "board", ["board", "facilities"]),),
    "Booking.zone": (_set(_STREAMS, ({"schedule": [_BOOKED[0] | {"zone": "b"}], "level": "zone"},)),),
    "Booking.day": (_set(_STREAMS, ({"schedule": [_BOOKED[0] | {"day": "2026-03-04"}], "level": "zone"},)),),
    "Booking.start": (_set(_STREAMS, ({"schedule": [_BOOKED[0] | {"start": "06:30"}], "level": "zone"},)),),
    "Booking.end": (_set(_STREAMS, ({"schedule": [_BOOKED[0] | {"end": "21:00"}], "level": "zone"},)),),
}  # fmt: skip
"""Key -> the edits that change it."""
