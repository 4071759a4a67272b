"""Tables for decisions: their columns, their bad rows, and compound queries over them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from connectors.tables.decisions import Question, Source, question, read_counts, read_thresholds, read_values
from stream.errors import DataError, UsageError


def file(tmp_path: Path, name: str, *lines: str) -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("column", ["predicate", "zone"])
def test_the_column_of_predicates_has_one_of_two_names(tmp_path: Path, column: str) -> None:
    assert read_counts(file(tmp_path, "counts.csv", f"count,{column}", "3,hall", "0,lab")) == {"hall": 3, "lab": 0}


@pytest.mark.parametrize(
    ("header", "rule"),
    [
        ("predicate,zone,count", "must have a column predicate or zone, not both"),
        ("zone,count,count", "must name each column once"),
        ("zone,zone,count", "must name each column once"),
        ("name,count", "must name the columns predicate, count; predicate is missing"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, header: str, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        read_counts(file(tmp_path, "counts.csv", header, "a,1,2"))


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("secret,-1", "count must be a whole number"),
        ("secret,1.5", "count must be a whole number"),
        ("secret,1000000001", "count must be a whole number"),
        (" secret,1", "predicate must be a name"),
        (",1", "predicate must be a name"),
        ("hall,1", "predicate must appear once"),
        ("secret", "must have the fields that the first line names"),
    ],
)
def test_one_bad_row_refuses_the_file_by_line_and_field(tmp_path: Path, row: str, rule: str) -> None:
    with pytest.raises(DataError, match=f"line 3: {rule}.*; nothing is decided") as error:
        read_counts(file(tmp_path, "counts.csv", "zone,count", "hall,1000000000", row))
    assert "secret" not in str(error.value)


def test_a_table_has_at_least_one_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must have at least one row"):
        read_counts(file(tmp_path, "counts.csv", "zone,count"))


def test_a_predicate_may_have_many_values(tmp_path: Path) -> None:
    path = file(tmp_path, "values.csv", "zone,value", "hall,1.5", "hall,-2e-1")
    assert list(read_values(path)) == [("hall", Fraction(3, 2)), ("hall", Fraction(-1, 5))]
    with pytest.raises(DataError, match="line 2: value must be a number of at most"):
        list(read_values(file(tmp_path, "values.csv", "zone,value", "hall,1e10")))


def test_thresholds_may_have_an_alpha_and_cells(tmp_path: Path) -> None:
    plain = read_thresholds(file(tmp_path, "plain.csv", "zone,threshold", "hall,10"))
    assert (plain.alphas, plain.cells) == ({}, {"hall": frozenset({"hall"})})
    full = read_thresholds(file(tmp_path, "full.csv", "zone,threshold,alpha,cells", "hall,10,2,a|b", "lab,5,1,c"))
    assert full.alphas == {"hall": Fraction(2), "lab": Fraction(1)}
    assert full.cells == {"hall": frozenset("ab"), "lab": frozenset("c")}
    for cells in ("a|c", "a|a", "a|"):
        with pytest.raises(DataError, match=r"cells must be names|no cell may be in two predicates"):
            read_thresholds(file(tmp_path, "bad.csv", "zone,threshold,cells", f"hall,10,{cells}", "lab,5,c"))


def built(tmp_path: Path, query: dict[str, Any] | None = None) -> Question:
    counts = file(tmp_path, "counts.csv", "zone,count", "hall,12", "lab,3")
    thresholds = file(tmp_path, "thresholds.csv", "zone,threshold", "hall,10", "lab,5")
    path = None
    if query is not None:
        path = tmp_path / "query.json"
        path.write_text(json.dumps(query))
    return question(Source(counts, thresholds, Fraction(2)), path)


def test_each_operator_compares_in_its_direction(tmp_path: Path) -> None:
    limits = {}
    for operator in (">", ">=", "<", "<="):
        (table,) = built(tmp_path, {"operator": operator}).tables().values()
        limits[operator] = (table.counts.tolist(), table.thresholds.tolist())
    assert limits == {
        ">": ([12, 3], [10, 5]),
        ">=": ([12, 3], [9, 4]),
        "<": ([-12, -3], [-10, -5]),
        "<=": ([-12, -3], [-11, -6]),
    }


def test_a_negation_turns_the_operator_around(tmp_path: Path) -> None:
    (plain,) = built(tmp_path, {"operator": "<="}).tables().values()
    (negated,) = built(tmp_path, {"not": {"operator": ">"}}).tables().values()
    assert (negated.counts.tolist(), negated.thresholds.tolist()) == (plain.counts.tolist(), plain.thresholds.tolist())


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ({"operator": "="}, '"operator" must be one of'),
        ({"counts": ""}, '"counts" must be the name of a file'),
        ({"alpha": "2"}, '"alpha" must be a number'),
        ({"other": 1}, 'unknown entry "other"'),
        ({"and": []}, "must be a list of at least one"),
        ({"and": [{}], "disjoint": 1}, '"disjoint" must be true or false'),
        ({"not": []}, "must be an object"),
    ],
)
def test_a_malformed_query_is_refused(tmp_path: Path, query: dict[str, Any], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        built(tmp_path, query)
