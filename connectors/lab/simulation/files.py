"""Write a simulated building to files: observations, and the truth.

Every writer writes to an open text stream in blocks, so that the four million rows of a full-scale run take seconds;
``progress`` is called with the number of rows done and of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from stream.lab.simulator.events import Simulation
from stream.lab.simulator.visits import DeviceClass
from stream.records import SECOND

Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]

BLOCK = 50_000
COLUMNS = "time,device,access_point,site"
TRUTH_COLUMNS = "device,zone,start,end,class"
CENTISECOND = SECOND // 100

_UPTIME = ".1.3.6.1.2.1.1.3.0"
_TRAP_OID = ".1.3.6.1.6.3.1.1.4.1.0"
_ASSOCIATE = ".1.3.6.1.4.1.14179.2.6.3.53"
_FIELD = ".1.3.6.1.4.1.14179.2.6.2"
_AP_NAME = ".1.3.6.1.4.1.14179.2.2.1.1.3.0"


def rfc3339(times: Ints) -> list[str]:
    """Return UTC microseconds as RFC 3339 text with six decimals and ``Z``."""
    stamps: list[str] = np.datetime_as_string(times.astype("datetime64[us]")).tolist()
    return [f"{stamp}Z" for stamp in stamps]


def write_csv(simulation: Simulation, out: TextIO, progress: Progress | None = None) -> int:
    """Write the observations with the columns time, device, access_point, site; return their number."""
    out.write(f"{COLUMNS}\n")
    devices, points = simulation.devices, simulation.building.access_points
    tail = f",{simulation.config.site}\n"

    def lines(rows: slice) -> Iterator[str]:
        for time, device, point in _rows(simulation, rows):
            yield f"{time},{devices[device]},{points[point]}{tail}"

    return _blocks(len(simulation.time), lines, out, progress)


def write_jsonl(simulation: Simulation, out: TextIO, progress: Progress | None = None) -> int:
    """Write the observations as one JSON object a line with the same fields; return their number."""
    devices, points = simulation.devices, simulation.building.access_points
    tail = f'","site":"{simulation.config.site}"}}\n'

    def lines(rows: slice) -> Iterator[str]:
        for time, device, point in _rows(simulation, rows):
            yield f'{{"time":"{time}","device":"{devices[device]}","access_point":"{points[point]}{tail}'

    return _blocks(len(simulation.time), lines, out, progress)


def write_snmptrapd(
    simulation: Simulation, out: TextIO, progress: Progress | None = None, source: str = "127.0.0.1"
) -> int:
    """Write the observations as net-snmp's snmptrapd would log a controller's traps; return their number.

    The form is that of ``snmptrapd -On -Ox -m '' -F 'T|%b|%t|%a|%N|%w|%q|%v\\n'`` for SNMPv2c: whole seconds
    of Unix time, tab-separated ``OID = TYPE: value``. Up-time counts from the start of the run.
    """
    head = f"T|UDP: [{source}]:32768->[{source}]:1162|"
    clients = [_hex(bytes.fromhex(mac.replace(":", ""))) for mac in simulation.devices]
    points = [_point_fields(simulation, index) for index in range(len(simulation.building.zones))]

    def lines(rows: slice) -> Iterator[str]:
        since = ((simulation.time[rows] - simulation.start) // CENTISECOND).tolist()
        seconds = (simulation.time[rows] // SECOND).tolist()
        where = zip(simulation.device[rows].tolist(), simulation.access_point[rows].tolist(), strict=True)
        for uptime, second, (device, point) in zip(since, seconds, where, strict=True):
            yield (
                f"{head}{second}|0.0.0.0|.|0|0|{_UPTIME} = Timeticks: {timeticks(uptime)}\t"
                f"{_TRAP_OID} = OID: {_ASSOCIATE}\t{points[point][0]}\t"
                f'{_FIELD}.34.0 = Hex-STRING: {clients[device]}\t{_FIELD}.39.0 = ""\t{points[point][1]}\n'
            )

    return _blocks(len(simulation.time), lines, out, progress)


def write_truth(simulation: Simulation, out: TextIO) -> int:
    """Write the true visits with the columns device, zone, start, end, class; return their number.

    A device was in the zone in [start, end); visits of one device do not overlap, so the devices present at
    an instant are those with start <= instant < end.
    """
    out.write(f"{TRUTH_COLUMNS}\n")
    visits, zones = simulation.visits, simulation.building.zones
    labels = [DeviceClass(kind).label for kind in simulation.device_class.tolist()]
    order = np.lexsort((visits.device, visits.start))

    def lines(rows: slice) -> Iterator[str]:
        part = visits.select(order[rows])
        spans = zip(rfc3339(part.start), rfc3339(part.end), strict=True)
        for device, zone, (start, end) in zip(part.device.tolist(), part.zone.tolist(), spans, strict=True):
            yield f"{simulation.devices[device]},{zones[zone]},{start},{end},{labels[device]}\n"

    return _blocks(len(order), lines, out, None)


def timeticks(ticks: int) -> str:
    """Return hundredths of a second the way net-snmp prints them: ``(8640042) 1 day, 0:00:00.42``."""
    seconds, hundredths = divmod(ticks, 100)
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    clock = f"{hours}:{rest // 60:02d}:{rest % 60:02d}.{hundredths:02d}"
    named = f"{days} day{'s' if days > 1 else ''}, " if days else ""
    return f"({ticks}) {named}{clock}"


def access_point_name(simulation: Simulation, index: int) -> str:
    """Return the name a controller gives to an access point: building, then zone."""
    return f"{simulation.config.site}-ap-{simulation.building.zones[index]}"


def _rows(simulation: Simulation, rows: slice) -> Iterator[tuple[str, int, int]]:
    return zip(
        rfc3339(simulation.time[rows]),
        simulation.device[rows].tolist(),
        simulation.access_point[rows].tolist(),
        strict=True,
    )


def _point_fields(simulation: Simulation, index: int) -> tuple[str, str]:
    """Return the varbinds of one access point that precede and follow the client's."""
    address = bytes.fromhex(simulation.building.access_points[index].replace(":", ""))
    name = access_point_name(simulation, index).encode()[:32]
    before = (
        f"{_FIELD}.35.0 = Hex-STRING: {_hex(address)}\t{_FIELD}.36.0 = INTEGER: {index % 2}\t"
        f"{_FIELD}.43.0 = IpAddress: 0.0.0.0"
    )
    return before, f"{_AP_NAME} = Hex-STRING: {_hex(name)}"


def _hex(octets: bytes) -> str:
    """Octets as net-snmp prints them: upper case, a blank after each."""
    return octets.hex(" ").upper() + " "


def _blocks(total: int, lines: Callable[[slice], Iterator[str]], out: TextIO, progress: Progress | None) -> int:
    for first in range(0, total, BLOCK):
        last = min(first + BLOCK, total)
        out.write("".join(lines(slice(first, last))))
        if progress is not None:
            progress(last, total)
    return total
