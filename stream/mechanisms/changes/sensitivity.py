"""D'²: the largest |C'd|² of one device's day at one level, certified.

The bounds hold for every day of at most so many visits at all nodes of the level together, however they are divided
among the nodes, and for shorter days too: |C'd|² has one more square for each further tick. Tests derive them again
(``tests.support.changes_certificate``, which has the proof). For one node they are in D' at most 1 % above a day that
exists for up to four visits, and 1.5 % for more. For several nodes they are attained where there are as many nodes as
visits; with fewer nodes a day may cost less. A level of one node needs less noise, as visits at one node lower each
other's part.
"""

from __future__ import annotations

from stream.mechanisms.changes.factor import MatrixFactor

SEVERAL = 2
"""Stands for any number of nodes above 1."""

ONE_NODE: dict[int, tuple[int, ...]] = {
    50: (
        20776036533,
        30009015822,
        46363488188,
        51620060975,
        56090084138,
        59973630170,
        63403721426,
        66282598653,
    ),
    100: (
        25389570523,
        37513334511,
        64676552045,
        72799208140,
        79777902910,
        86037641582,
        91511366608,
        96517472556,
    ),
    150: (
        28397581251,
        42397806098,
        78099424645,
        88229784615,
        97110653697,
        105081176245,
        112083378876,
        118613408174,
    ),
    300: (
        34137024824,
        51699656793,
        107116565721,
        121735764928,
        134696881480,
        146244585656,
        157025670597,
        167182823553,
    ),
}
"""Ticks -> D'² of 1 to 8 visits at a level of one node, in units of u' squared."""

SEVERAL_NODES: dict[int, tuple[int, ...]] = {
    50: (
        20776036533,
        35231539501,
        62480573953,
        73557694856,
        83133502126,
        91612041836,
        99299945010,
        106308304760,
    ),
    100: (
        25389570523,
        43521121847,
        85973074280,
        101652336740,
        115416482896,
        127777133979,
        139141802443,
        149639806683,
    ),
    150: (
        28397581251,
        48922337922,
        103012545439,
        122087102488,
        138901860538,
        154119095078,
        168078437042,
        181023133652,
    ),
    300: (
        34137024824,
        59230382955,
        139378300452,
        165692815146,
        189041213109,
        210246341537,
        229802206229,
        248053984016,
    ),
}
"""The same at a level of several nodes."""


def squared_sensitivity(factor: MatrixFactor, nodes: int) -> int:
    """Return D'² of a level with this number of nodes, in units of u' squared."""
    table = ONE_NODE if nodes == 1 else SEVERAL_NODES
    ticks = min(ticks for ticks in table if ticks >= factor.ticks)
    return table[ticks][factor.visits - 1]
