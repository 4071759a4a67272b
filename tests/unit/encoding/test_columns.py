"""Rows by column: the same rows, whichever way they are stored."""

from __future__ import annotations

from stream.records import LEFT, MINUTE, SECOND, Columns, Row

ROWS = (Row("d1", "ap1", 5), Row("d2", f"{LEFT}ap1", 6), Row("d1", None, 7), Row("d3", "ap1", 8))


def test_columns_have_the_rows_of_which_they_were_made() -> None:
    columns = Columns.of(ROWS)
    assert (tuple(columns), len(columns), columns[1], columns[1:3]) == (ROWS, 4, ROWS[1], ROWS[1:3])
    assert columns == ROWS
    assert columns.table == ("ap1", f"{LEFT}ap1", None), "each place once"
    assert Columns.of(columns) is columns
    assert (len(Columns.of(())), tuple(Columns.of(()))) == (0, ())
    assert hash(columns) == hash(ROWS)


def test_a_row_is_a_sighting_unless_it_ends_a_stay() -> None:
    assert [row.is_sighting for row in ROWS] == [True, False, False, True]


def test_chosen_rows_keep_their_logins() -> None:
    columns = Columns.of(ROWS).with_logins(["anne", None, None, "ben"])
    chosen = columns.where([1, 0, "yes", True])
    assert tuple(chosen) == (ROWS[0], ROWS[2], ROWS[3])
    assert [chosen.login(place) for place in range(3)] == ["anne", None, "ben"]
    assert Columns.of(ROWS).where([True] * 4).logins is None
    assert Columns.of(ROWS).login(0) is None


def test_rows_with_other_logins_are_not_equal() -> None:
    plain, known = Columns.of(ROWS), Columns.of(ROWS).with_logins(["anne", None, None, None])
    assert known != plain
    assert known != ROWS
    assert known == Columns.of(ROWS).with_logins(("anne", None, None, None))
    assert plain != ROWS[:3]
    assert plain != list(ROWS), "a list is no rows"
    assert repr(known) == "Columns(of 4 rows)", "neither device nor login"
    assert (MINUTE, SECOND) == (60_000_000, 1_000_000)
