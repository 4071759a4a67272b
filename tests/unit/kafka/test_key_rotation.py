"""On Kafka a day's key is destroyed when every site of the policy is past the day."""

from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError

from connectors.keys import key_files
from connectors.storage.kafka import key_rotation
from connectors.storage.kafka.key_rotation import oldest_key_day_needed
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.records import DAY, MINUTE, Heartbeat
from stream.release.validation import Policy, load_policy

POLICY = load_policy(
    "".join(
        f"""
[site.{name}]
sources = ["10.0.0.1"]
tick = "30min"
[[site.{name}.zones]]
id = "1"
capacity = 5
access_points = ["02:00:00:00:00:0{number}"]
"""
        for number, name in enumerate(("east", "west"))
    )
    + """
[[audience]]
name = "a"
[[release]]
name = "r"
query = "count"
mechanism = "laplace"
epsilon = { a = "1" }
"""
)
HOUR = 60 * MINUTE
START = 17_600 * DAY


def snapshot(keys: key_files.FileKeys, site: str, until: int, policy: Policy = POLICY) -> bytes:
    partition = PartitionEngine(policy, keys)
    for time in range(START, until + 1, 12 * HOUR):
        partition.process(0, None, encode_message(Heartbeat(site, "10.0.0.1", 1, time, 0)))
    return partition.snapshot(1, 0)


def test_oldest_key_day_needed_is_that_of_the_slowest_site(tmp_path: Path) -> None:
    key_files.create(tmp_path / "key", laboratory=False)
    keys = key_files.FileKeys(tmp_path / "key")
    east, west = snapshot(keys, "east", START + 3 * DAY), snapshot(keys, "west", START + DAY + HOUR)
    assert oldest_key_day_needed([east, west], POLICY, keys) == 17_600
    west = snapshot(keys, "west", START + 2 * DAY)
    assert oldest_key_day_needed([east, west], POLICY, keys) == 17_601


def test_no_day_goes_while_a_site_has_not_begun(tmp_path: Path) -> None:
    key_files.create(tmp_path / "key", laboratory=False)
    keys = key_files.FileKeys(tmp_path / "key")
    assert oldest_key_day_needed([snapshot(keys, "east", START + 3 * DAY)], POLICY, keys) is None


def test_a_partition_whose_only_site_an_accepted_policy_took_away_holds_no_day_back(tmp_path: Path) -> None:
    """It gets no message any more, so that its state stays as it was under the policy before."""
    key_files.create(tmp_path / "key", laboratory=False)
    keys = key_files.FileKeys(tmp_path / "key")
    sites = {"east": POLICY.site["east"]}
    without = POLICY.model_copy(update={"site": sites})
    assert without.version != POLICY.version
    west = snapshot(keys, "west", START + DAY + HOUR)
    east = snapshot(keys, "east", START + 3 * DAY, without)
    assert oldest_key_day_needed([west, east], without, keys) == 17_602
    assert oldest_key_day_needed([west], without, keys) is None
    dearer = [POLICY.release[0].model_copy(update={"name": "s"})]
    other = without.model_copy(update={"release": tuple(dearer)})
    assert oldest_key_day_needed([east], other, keys) is None, "the site has not begun under this policy"


@pytest.mark.parametrize("error", [KafkaConnectionError, ConnectionError, TimeoutError])
async def test_no_day_goes_while_no_broker_answers_and_nothing_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    async def away(bootstrap: str) -> dict[int, bytes | None]:
        raise error("no answer")

    key_files.create(tmp_path / "key", laboratory=False, first_day=17_600)
    before = (tmp_path / "key").read_bytes()
    monkeypatch.setattr(key_rotation, "last_snapshots", away)
    await key_rotation.forget_past_key_days("broker:9092", POLICY, key_files.FileKeys(tmp_path / "key"))
    assert (tmp_path / "key").read_bytes() == before
