"""Client tables: which rows are associated devices, and at which access point."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from connectors.sources.polls.client_tables import (
    TABLES,
    USER_NAMES,
    AssociatedClient,
    Cell,
    associated,
    client_table,
)
from connectors.sources.polls.rest_tables import SYSTEMS
from connectors.sources.snmp.ber import (
    INTEGER,
    NULL,
    OCTET_STRING,
    encode_integer,
    encode_oid,
    encode_sub_identifier,
)
from stream.policy.polls import IN_CLOUD, ON_PREMISES, Poll

RADIO, NEXT_RADIO = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
FIRST, SECOND = bytes.fromhex("3c0000000001"), bytes.fromhex("3cff00000080")


class Row(NamedTuple):
    """One row of an agent's table."""

    key: bytes
    place: Cell
    status: Cell | None


def index(*numbers: int) -> bytes:
    return b"".join(map(encode_sub_identifier, numbers))


def place(octets: bytes = RADIO) -> Cell:
    return Cell(OCTET_STRING, octets)


def status(number: int) -> Cell:
    return Cell(INTEGER, encode_integer(number)[2:])


def row(client: bytes, state: int = 3, radio: bytes = RADIO, further: tuple[int, ...] = ()) -> Row:
    return Row(index(*client, *further), place(radio), status(state))


def found(by: str, *rows: Row) -> list[AssociatedClient]:
    columns = [{each.key: each.place for each in rows}]
    if TABLES[by].status:
        columns.append({each.key: each.status for each in rows if each.status is not None})
    return associated(TABLES[by], columns)


def test_every_table_of_the_policy_is_declared() -> None:
    assert {*TABLES, *SYSTEMS} == set(Poll.model_fields["by"].annotation.__args__)  # type: ignore[union-attr]
    assert set(SYSTEMS) == ON_PREMISES | IN_CLOUD


@pytest.mark.parametrize(
    ("by", "counted", "passed_over"),
    [
        ("cisco-lwapp", {3, 4, 5}, {1, 2, 6, 7, 8, 9}), ("cisco-aireos", {2, 3, 4}, {0, 1, 5, 6, 7, 8}),
        ("huawei", {2, 3, 4}, {1, 5}),
    ],
)  # fmt: skip
def test_only_associated_devices_count(by: str, counted: set[int], passed_over: set[int]) -> None:
    for state in counted | passed_over:
        assert (found(by, row(FIRST, state)) == [AssociatedClient(FIRST, RADIO)]) == (state in counted), state
    assert found(by, row(FIRST)._replace(status=None)) == []
    assert found(by, row(FIRST)._replace(status=Cell(NULL, b""))) == []


def test_a_table_without_a_status_holds_associated_devices_only() -> None:
    assert found("ruckus-zonedirector", row(FIRST), row(SECOND, radio=NEXT_RADIO)) == [
        AssociatedClient(FIRST, RADIO), AssociatedClient(SECOND, NEXT_RADIO),
    ]  # fmt: skip


def test_a_device_of_aruba_with_several_addresses_is_one_and_wired_ones_are_none() -> None:
    first, second = (10, 0, 0, 9), (192, 168, 0, 9)
    rows = [row(FIRST, 2, RADIO, first), row(FIRST, 2, NEXT_RADIO, second), row(SECOND, 1, RADIO, first)]
    assert found("aruba", *rows) == [AssociatedClient(FIRST, RADIO)]
    assert found("aruba", row(FIRST, 1, RADIO, first), row(FIRST, 2, NEXT_RADIO, second)) == [
        AssociatedClient(FIRST, NEXT_RADIO)
    ]


def test_comware_names_its_access_points() -> None:
    rows = [Row(index(*FIRST), place(b"219801A0CNC"), None), Row(index(*SECOND), place(b""), None)]
    assert found("comware", *rows) == [AssociatedClient(FIRST, b"", b"219801A0CNC")]


@pytest.mark.parametrize(
    "bad",
    [
        row(FIRST[:5]), row(FIRST, further=(1,)), row(FIRST)._replace(key=index(*FIRST[:5], 256)),
        row(FIRST, radio=bytes(6)), row(FIRST, radio=RADIO[:5]), row(FIRST)._replace(place=Cell(NULL, b"")),
    ],
)  # fmt: skip
def test_a_row_without_device_or_place_is_passed_over_and_takes_no_other_with_it(bad: Row) -> None:
    assert found("cisco-lwapp", bad, row(SECOND)) == [AssociatedClient(SECOND, RADIO)]


def test_a_row_more_or_less_changes_its_own_device_alone() -> None:
    draw = random.Random(7)
    for by in ("cisco-lwapp", "aruba"):
        rows = [
            row(bytes([0x3C, 0, 0, 0, 0, draw.randrange(40)]), draw.choice((1, 2, 3, 4)),
                draw.choice((RADIO, NEXT_RADIO, bytes(6))),
                tuple(draw.randbytes(4 if by == "aruba" else 0)))
            for _ in range(60)
        ]  # fmt: skip
        for left_out, odd in enumerate(rows):
            with_it, without = found(by, *rows), found(by, *rows[:left_out], *rows[left_out + 1 :])
            assert {each for each in with_it if each.client[5] != odd.key[5]} == {
                each for each in without if each.client[5] != odd.key[5]
            }


def named(by: str, *rows: tuple[Row, bytes | None]) -> list[AssociatedClient]:
    """Read rows and their user names; None: the agent has no such cell."""
    table = client_table(by, logins=True)
    columns = [{each.key: each.place for each, _ in rows}]
    if table.status:
        columns.append({each.key: each.status for each, _ in rows if each.status is not None})
    columns.append({each.key: Cell(OCTET_STRING, name) for each, name in rows if name is not None})
    assert len(columns) == len(table.columns)
    return associated(table, columns)


@pytest.mark.parametrize(
    ("by", "column"),
    [
        ("cisco-lwapp", "1.3.6.1.4.1.9.9.599.1.3.1.1.27"), ("cisco-aireos", "1.3.6.1.4.1.14179.2.1.4.1.3"),
        ("aruba", "1.3.6.1.4.1.14823.2.2.1.4.1.2.1.3"),
    ],
)  # fmt: skip
def test_user_names_are_a_column_that_only_sites_with_logins_read(by: str, column: str) -> None:
    assert [*client_table(by, logins=True).columns] == [*TABLES[by].columns, encode_oid(column)]
    assert client_table(by, logins=False) == TABLES[by]
    assert client_table(by, logins=False).user_names is None


@pytest.mark.parametrize("by", sorted(TABLES.keys() - USER_NAMES.keys()))
def test_a_table_without_a_known_column_of_user_names_is_read_as_without_logins(by: str) -> None:
    assert client_table(by, logins=True) == TABLES[by]


def test_a_user_name_that_may_be_cut_off_is_none_and_so_is_a_missing_one() -> None:
    for name, read in ((b"anne", b"anne"), (b"a" * 31, b"a" * 31), (b"a" * 32, b""), (b"", b""), (None, b"")):
        assert named("cisco-lwapp", (row(FIRST), name)) == [AssociatedClient(FIRST, RADIO, user_name=read)], name


def test_a_device_has_an_entry_for_each_user_name_so_that_no_login_displaces_another() -> None:
    first, second, third = ((10, 0, 0, n) for n in range(3))
    rows = [
        (row(FIRST, 2, RADIO, first), b"anne"), (row(FIRST, 2, NEXT_RADIO, second), b"bert"),
        (row(FIRST, 2, NEXT_RADIO, third), b"anne"),
    ]  # fmt: skip
    anne, bert = AssociatedClient(FIRST, RADIO, user_name=b"anne"), AssociatedClient(FIRST, NEXT_RADIO, b"", b"bert")
    assert named("aruba", *rows) == [anne, bert]
    assert named("aruba", rows[0], rows[2]) == [anne]


def test_nothing_shows_a_device() -> None:
    assert repr([AssociatedClient(FIRST, RADIO), place()]) == "[AssociatedClient(), Cell()]"
