"""The topics of a policy."""

from fractions import Fraction

import pytest

from connectors.storage.kafka.topics import refuse_missing, topic_names
from stream.errors import UsageError
from stream.keys import LaboratoryKeys
from stream.operators import scan
from stream.records import MINUTE, OccupancyWindow, Published
from stream.release.stage import ReleaseStage
from stream.release.validation import load_policy

POLICY = load_policy("""
[site.dbh]
sources = ["10.0.0.1"]
[[site.dbh.zones]]
id = "1"
capacity = 5
access_points = ["02:00:00:00:00:01"]
[[audience]]
name = "a"
[[audience]]
name = "b"
[[release]]
name = "r"
query = "count"
mechanism = "laplace"
epsilon = { a = "1", b = "0.5" }
queries = [{ name = "hourly", kind = "window-sum", windows = 12 }]
""")


def test_every_topic_that_is_published_to_is_among_those_created() -> None:
    stage = ReleaseStage(POLICY, "dbh", LaboratoryKeys(b"k" * 32, "ledger", b"a" * 32))
    _, outputs = scan(stage, [OccupancyWindow("dbh", 1_000_000 * 5 * MINUTE, (3,), Fraction(1))])
    published = {output.topic for output in outputs if isinstance(output, Published)}
    assert len(published) == 5
    assert published <= set(topic_names(POLICY))


def test_a_worker_is_told_of_a_topic_that_is_missing() -> None:
    names = topic_names(POLICY)
    refuse_missing(names, POLICY)
    with pytest.raises(UsageError, match=r"topic tacet\.private\.b\.hourly\.v1: must exist"):
        refuse_missing([name for name in names if name != "tacet.private.b.hourly.v1"], POLICY)
