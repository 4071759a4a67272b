"""On Kafka a day's key goes when every site of the policy is past it, wherever the site is processed."""

from connectors import keyfile
from connectors.days import oldest_day_needed
from stream.partition import Partition
from stream.policy import load_policy
from stream.records import DAY, MINUTE, Heartbeat
from stream.schemas import encode_message

POLICY = load_policy(
    "".join(
        f"""
[site.{name}]
sources = ["10.0.0.1"]
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


def snapshot(keys: keyfile.FileKeys, site: str, until: int) -> bytes:
    partition = Partition(POLICY, keys)
    for time in range(START, until + 1, 12 * HOUR):
        partition.feed(0, None, encode_message(Heartbeat(site, "10.0.0.1", 1, time, 0)))
    return partition.snapshot(1, 0)


def test_oldest_day_needed_is_that_of_the_slowest_site(tmp_path):
    keyfile.create(tmp_path / "key", laboratory=False)
    keys = keyfile.FileKeys(tmp_path / "key")
    east, west = snapshot(keys, "east", START + 3 * DAY), snapshot(keys, "west", START + DAY + HOUR)
    assert oldest_day_needed([east, west], POLICY, keys) == 17_600
    west = snapshot(keys, "west", START + 2 * DAY)
    assert oldest_day_needed([east, west], POLICY, keys) == 17_601


def test_no_day_goes_while_a_site_has_not_begun(tmp_path):
    keyfile.create(tmp_path / "key", laboratory=False)
    keys = keyfile.FileKeys(tmp_path / "key")
    assert oldest_day_needed([snapshot(keys, "east", START + 3 * DAY)], POLICY, keys) is None
