"""Deterministic processes: one queue of events in virtual time, and processes whose callbacks it runs.

A ``World`` holds the time. A ``Process`` is what an operating system calls one: it has one processor, one or more event
loops (a thread of a library that runs an event loop becomes a second loop of its process), its own copies of module
globals, and handlers of signals. Whatever runs in a process runs as a callback of one of its loops, and each callback
costs virtual time that the seed draws; so a process with much to do is late.

- **Pause**: callbacks are held; what falls due meanwhile is run afterwards, overdue.
- **Kill**: callbacks and connections vanish. Coroutines stay as they are until the world ends, so that no ``finally``
  of theirs runs; whatever they would do then has no effect.

``guarded`` replaces every source of chance and time: clocks, ``os.urandom``, ``random``, threads and sockets. Whoever
uses one of them outside of a simulated process gets an error.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import hashlib
import io
import logging
import os
import random
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from contextvars import Context
from heapq import heappop, heappush
from pathlib import Path
from types import FunctionType
from typing import Any, Protocol
from zlib import crc32

from aiokafka import structs
from aiokafka.producer.message_accumulator import BatchBuilder
from anyio._backends._asyncio import CancelScope, _task_states
from faust.types.tuples import TP
from mode import services as mode_services
from mode import threads as mode_threads

from connectors.runtime.offload import offload
from connectors.storage.kafka import connection as access
from stream.settings import Settings

START = 1_772_499_300
"""Wall-clock time at which every world begins, in seconds: 2026-03-03T00:55Z."""
COSTS = 1009
"""Number of drawn costs of callbacks; a prime, so that they meet callbacks in ever new ways."""
ORDINARY_COST = 40e-6
"""Seconds that a callback takes on average."""
LOOK_EVERY = 0.05
"""Seconds between two looks at what a run waits for."""


class SimulationError(Exception):
    """The simulation cannot go on; not a fault of the code in it."""


class Trace:
    """What happened, in order; its digest tells two runs apart."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self.folder: Path | None = None
        """A folder whose name has nothing to do with the seed; the time line calls it ``folder``."""
        self.lines: list[str] = []

    def add(self, at: float, who: str, what: str) -> None:
        """Add a line to the time line."""
        if self.folder is not None:
            what = what.replace(str(self.folder), "folder")
        line = f"{at:10.3f}  {who:<10} {what}"
        self.lines.append(line)
        self._digest.update(line.encode())

    def count(self, *facts: object) -> None:
        """Let facts count for the digest that are no line of their own."""
        self._digest.update(repr(facts).encode())

    def digest(self) -> str:
        """Return the digest of everything so far."""
        return self._digest.hexdigest()


class World:
    """The time, what is due, and chance: everything follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 1000.0
        """Monotonic time in seconds."""
        self.trace = Trace()
        self.processes: list[Process] = []
        self.current: Process | None = None
        self.connect: Callable[[Process, Loop, Callable[[], asyncio.Protocol], str, int], asyncio.Future[Any]] | None
        self.connect = None
        """How a process opens a connection; set by the network."""
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        """A heap of what is due: when, a number that keeps the order, and what."""
        self._end = self._looked = self.now
        self._number = 0
        self._objects = 0
        self._bytes = random.Random(seed + 1)

    @property
    def wall(self) -> float:
        """Wall-clock time in seconds, without the offset of a process."""
        return START - 1000.0 + self.now

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a time; what is due at one time is done in the order of these calls."""
        self._number = number = self._number + 1
        now = self.now
        heappush(self.due, (when if when > now else now, number, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something after so many seconds."""
        self.at(self.now + seconds, action)

    def next_number(self) -> int:
        """Return the next of a row of numbers, by which objects are told apart."""
        self._objects += 1
        return self._objects

    def log(self, who: str, what: str) -> None:
        """Add a line to the time line."""
        self.trace.add(self.now - 1000.0, who, what)

    def run(self, until: Callable[[], bool], limit: float) -> bool:
        """Run until a condition holds, at most for so many seconds; return whether it holds."""
        end, due = self.now + limit, self.due
        self._end, self._looked = end, self.now
        while due and due[0][0] <= end:
            self.now, _, action = heappop(due)
            action()
            if self.now - self._looked >= LOOK_EVERY:
                self._looked = self.now
                if until():
                    return True
        self.now = max(self.now, end) if self.due else self.now
        return until()

    def is_next(self, action: Callable[[], None]) -> bool:
        """Take an action from what is due if ``run`` would do it next, and return whether it was; who asks does it."""
        when, _, first = self.due[0]
        if first is not action or when > self._end or self.now - self._looked >= LOOK_EVERY:
            return False
        self.now, _, _ = heappop(self.due)
        return True

    def random_bytes(self, count: int) -> bytes:
        """Return bytes in place of the operating system's."""
        return self._bytes.randbytes(count)

    def close(self) -> None:
        """End everything; nothing that is left has any effect."""
        for process in self.processes:
            process.alive = False
            process.queue.clear()
            process.signals.clear()
            process.forget()
            for connection in process.connections:
                connection.vanish()
            process.connections.clear()
            for task in process.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _task_states.pop(task, None)  # its scope of cancellation would keep it
            process.tasks.clear()
        self.due.clear()


class Connection(Protocol):
    """An end of a connection that belongs to a process."""

    def vanish(self) -> None:
        """Break, because the process is gone."""

    def lost(self, error: Exception | None) -> None:
        """Break, because the network says so."""


Own = Callable[[], Mapping[str, Any]]
Globals = Mapping[str, Own]
"""By name of a module, a function that makes the values of globals that each process has for itself."""


class Process:
    """A simulated process."""

    def __init__(self, world: World, name: str, own_globals: Globals | None = None) -> None:
        self.world, self.name = world, name
        self.alive, self.paused = True, False
        self.exit_code: int | None = None
        self.failure: BaseException | None = None
        self.ended: Callable[[], None] = lambda: None
        """Called when it has ended, however that came about."""
        self.slowness = 1.0
        """Factor by which callbacks take longer than usual."""
        self.clock_offset = 0.0
        """Seconds by which its wall clock is ahead."""
        self.full_disk = False
        """Whether what it writes to files does not become durable, for want of room."""
        self.slow_disk = 0.0
        """Seconds that a sync takes."""
        self.queue: deque[tuple[Loop, asyncio.Handle]] = deque()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.connections: dict[Connection, None] = {}
        self.signals: dict[int, Callable[[], object]] = {}
        self._globals = [
            (sys.modules[module].__dict__, name, value)
            for module, make in (own_globals or {}).items()
            for name, value in make().items()
        ]
        draw = random.Random(f"{world.seed}/{name}")
        self._costs = [draw.expovariate(1 / ORDINARY_COST) for _ in range(COSTS)]
        self._turn = 0
        self._free_at = world.now
        self._blocked = 0.0
        """Seconds for which the callback that runs has waited for the disk."""
        self.scheduled = False
        """Whether it is due to run."""
        self._run_again = self._run
        world.processes.append(self)

    def start(self, main: Callable[[], Coroutine[Any, Any, int]]) -> None:
        """Run a coroutine; its result is the exit code."""
        loop = self._main = Loop(self)

        async def work() -> None:
            code = await main()
            self.exit(code)

        loop.call_soon(lambda: loop.create_task(work(), name="main").add_done_callback(self._ended))

    def _ended(self, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if self.alive:
            self.failure = failure
            self.world.log(self.name, f"died of {type(failure).__name__}: {failure}")
            self.exit(70)

    def exit(self, code: int) -> None:
        """End; nothing more runs."""
        if self.alive:
            self.world.log(self.name, f"exits with {code}")
            self.exit_code = code
            self._vanish()

    def kill(self) -> None:
        """End at once, as by SIGKILL."""
        if self.alive:
            self.world.log(self.name, "killed")
            self.exit_code = -9
            self._vanish()

    def _vanish(self) -> None:
        self.alive = False
        self.queue.clear()
        for connection in list(self.connections):
            connection.vanish()
        self.connections.clear()
        self.ended()

    def forget(self) -> None:
        """Let go of everything that keeps tasks alive; for the end of the world."""
        self._globals = []

    def pause(self) -> None:
        """Hold every callback, as by SIGSTOP."""
        if self.alive and not self.paused:
            self.world.log(self.name, "paused")
            self.paused = True

    def resume(self) -> None:
        """Go on, as by SIGCONT."""
        if self.alive and self.paused:
            self.world.log(self.name, "goes on")
            self.paused = False
            self.schedule()

    def signal(self, number: int) -> None:
        """Call the handler of a signal; without one the process is killed."""
        handler = self.signals.get(number)
        if handler is None:
            self.kill()
        elif self.alive:
            self._main.call_soon(handler)

    # --- running --------------------------------------------------------------------------------------

    def ready(self, loop: Loop, handle: asyncio.Handle) -> None:
        """Let a callback run when its turn comes."""
        if self.alive:
            self.queue.append((loop, handle))
            self.schedule()

    def sync(self, handle: int) -> None:
        """Sync a file, which takes as long as the disk does; OSError if the disk is full (``fsync(2)``)."""
        del handle
        self._blocked += self.slow_disk
        if self.full_disk:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def schedule(self) -> None:
        """Let it run as soon as it is free, if it has something to do."""
        if not self.scheduled and not self.paused and self.queue:
            self.scheduled = True
            self.world.at(self._free_at, self._run_again)

    def _run(self) -> None:
        """Run callbacks until something else of the world is due."""
        self.scheduled = False
        world, queue, costs = self.world, self.queue, self._costs
        if not queue or not self.alive or self.paused:
            return
        due, running, previous = world.due, None, self._enter()
        try:
            while queue and not self.paused:
                loop, handle = queue.popleft()
                if handle._cancelled:
                    continue
                if loop is not running:
                    asyncio._set_running_loop(loop)
                    running = loop
                handle._run()
                self._turn = turn = (self._turn + 1) % COSTS
                self._free_at = free_at = world.now + costs[turn] * self.slowness + self._blocked
                self._blocked = 0.0
                if due and due[0][0] < free_at:
                    if not world.is_next(self._run_again):
                        break
                    self.scheduled = False
                    continue
                world.now = free_at
        except ProcessEndError:
            return
        finally:
            asyncio._set_running_loop(None)
            self._leave(previous)
        self.schedule()

    def _enter(self) -> list[Any]:
        self.world.current = self
        previous = []
        for names, name, value in self._globals:
            previous.append(names[name])
            names[name] = value
        return previous

    def _leave(self, previous: list[Any]) -> None:
        self.world.current = None
        for (names, name, _), value in zip(self._globals, previous, strict=True):
            names[name] = value


class _Future(asyncio.Future):  # type: ignore[type-arg]
    """A future whose place in a set does not depend on its address."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task):  # type: ignore[type-arg]
    """A task whose place in a set does not depend on its address."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class ProcessEndError(BaseException):
    """Unwinds what runs in a process that has just ended itself."""


class Loop(asyncio.BaseEventLoop):
    """An event loop of a simulated process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._world = process.world
        super().__init__()

    def time(self) -> float:
        return self._world.now

    def is_running(self) -> bool:
        return True

    get_debug = bool
    """False, without a call of Python's: each future and each callback asks."""

    def set_debug(self, enabled: bool) -> None:
        """Keep no records for debugging."""

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        process = self.process
        if process.alive:
            if self._closed:
                raise RuntimeError("Event loop is closed")
            process.queue.append((self, handle))
            if not process.scheduled:
                process.schedule()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if self.process.alive:
            self._world.at(when, lambda: None if timer._cancelled else self.process.ready(self, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are passed over when they fall due."""

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(self._world.next_number(), self)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = _Task(
            self._world.next_number(), coro, loop=self, name=name and str(name), context=context
        )
        self.process.tasks[task] = None  # the tasks of a killed process must not be collected, which would end them
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.process.tasks.pop(task, None)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.process.alive:
            error = context.get("exception")
            self._world.log(self.process.name, f"left an error: {context.get('message')} {type(error).__name__}")

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self.process.signals[sig] = lambda: callback(*args)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        raise SimulationError("work in a thread must go through 'offload'")

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **kwargs: Any) -> Any:
        assert self._world.connect is not None, "this world has no network"
        return await self._world.connect(self.process, self, protocol_factory, host, port)

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> Any:
        raise SimulationError("names are not looked up in a simulated world")

    def close(self) -> None:
        self._closed = True

    def is_closed(self) -> bool:
        return bool(self._closed)

    def __del__(self, _warn: Any = None) -> None:
        """Leave nothing to close."""


class _Thread:
    """In place of a thread of mode's: the thread's loop becomes a second loop of its process."""

    def __init__(self, service: Any) -> None:
        self._service = service

    def start(self) -> None:
        loop = self._service.thread_loop
        loop.call_soon(lambda: loop.create_task(self._serve(), name="thread"))

    async def _serve(self) -> None:
        with suppress(Exception):
            await self._service._serve()
        self._service.set_shutdown()

    def stop(self) -> None:
        """Return at once: mode has waited for the end of the service."""


# --- order --------------------------------------------------------------------------------------------


@functools.cache
def _crc(text: str) -> int:
    return crc32(text.encode())


def order_sets() -> None:
    """Let the order of sets in the clients' libraries follow from their content, not from the process's hash seed.

    They iterate over sets of partitions, brokers, tasks' names and scopes of cancellation. Any order is right; here it
    is always the same one.
    """
    for kind in (structs.TopicPartition, TP):
        kind.__hash__ = lambda self: _crc(self[0]) * 1000 + self[1]
    structs.BrokerMetadata.__hash__ = lambda self: _crc(str(self[0]))
    setattr(CancelScope, "__hash__", _number_of_host)  # noqa: B010 - mypy takes it for a method that nobody replaces
    mode_services.Service._get_tasks = _tasks_by_name


def _number_of_host(scope: Any) -> int:
    return int(getattr(scope._host_task, "_number", 0))


_get_tasks = mode_services.Service._get_tasks


def _tasks_by_name(service: Any) -> list[Any]:
    return sorted(_get_tasks(service), key=lambda task: str(task.fun.__qualname__))


# --- guards -------------------------------------------------------------------------------------------


class _Policy(asyncio.DefaultEventLoopPolicy):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._simulated = world

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        if self._simulated.current is None:
            return super().new_event_loop()
        return Loop(self._simulated.current)


def _sources(world: World) -> dict[Any, Any]:
    """Return what replaces each source of time and chance, for each something else."""

    def process() -> Process:
        if world.current is None:
            raise SimulationError("time, chance and threads belong to simulated processes")
        return world.current

    def wall() -> float:
        return world.wall + process().clock_offset

    def end(code: int) -> None:
        process().exit(code)
        raise ProcessEndError

    def sync(handle: int) -> None:
        if world.current is not None:
            world.current.sync(handle)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise SimulationError("no thread and no socket in a simulated world")

    def monotonic() -> float:
        return world.now

    async def at_once(work: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        return work(*arguments)

    return {
        time.time: wall,
        time.time_ns: lambda: int(wall() * 1_000_000) * 1000,
        time.monotonic: monotonic,
        time.monotonic_ns: lambda: int(world.now * 1_000_000) * 1000,
        time.perf_counter: lambda: world.now,
        time.perf_counter_ns: lambda: int(world.now * 1_000_000) * 1000,
        offload: at_once,
        os.urandom: world.random_bytes,
        os._exit: end,
        os.fsync: sync,
        socket.create_connection: refuse,
        socket.socketpair: functools.partial(refuse),
    }


@functools.lru_cache(maxsize=1)
def _uses(sources: tuple[Any, ...], modules: int) -> list[tuple[dict[str, Any], str, Any]]:
    """Return where in this many loaded modules the sources are: a module's names, the name, the source."""
    del modules
    wanted = {id(each) for each in sources}
    return [
        (module.__dict__, attribute, value)
        for name, module in list(sys.modules.items())
        if hasattr(module, "__dict__") and not name.startswith(("_pytest", "pytest"))
        for attribute, value in module.__dict__.items()
        if id(value) in wanted
    ]


@functools.lru_cache(maxsize=1)
def _defaults(sources: tuple[Any, ...], modules: int) -> list[tuple[FunctionType, tuple[Any, ...] | None, Any]]:
    """Return the functions with a source as a default, such as ``clock=perf_counter``, and their defaults."""
    del modules
    wanted = {id(each) for each in sources}

    def values(function: FunctionType) -> Iterable[Any]:
        return (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())

    gc.unfreeze()  # frozen objects are not among those that it gives
    return [
        (each, each.__defaults__, each.__kwdefaults__)
        for each in gc.get_objects()
        if isinstance(each, FunctionType) and any(id(value) in wanted for value in values(each))
    ]


@contextmanager
def guarded(world: World) -> Iterator[None]:
    """Replace clocks, chance, threads and sockets in every module while a world runs; collect no garbage meanwhile."""
    sources, loaded = _sources(world), set(sys.modules)
    replaced = _uses(tuple(sources), len(sys.modules))
    for names, attribute, value in replaced:
        names[attribute] = sources[value]
    simulated = {id(source): other for source, other in sources.items()}
    with_defaults = _defaults(tuple(sources), len(sys.modules))
    for function, places, keywords in with_defaults:
        function.__defaults__ = places and tuple(simulated.get(id(each), each) for each in places)
        function.__kwdefaults__ = keywords and {name: simulated.get(id(each), each) for name, each in keywords.items()}
    chance, policy = random.getstate(), asyncio.get_event_loop_policy()

    def refuse(self: threading.Thread) -> None:
        raise SimulationError("no thread in a simulated world: work goes through 'offload'")

    append = BatchBuilder.append

    def stamped(self: BatchBuilder, *, timestamp: int | None, **fields: Any) -> Any:
        """Give a record the process's time; the library's compiled code asks the machine's clock."""
        return append(self, timestamp=int(time.time() * 1000) if timestamp is None else timestamp, **fields)

    order_sets()
    random.seed(world.seed)
    asyncio.set_event_loop_policy(_Policy(world))
    changed: list[tuple[Any, str, Any]] = [
        (mode_threads.ServiceThread, "Worker", _Thread), (threading.Thread, "start", refuse),
        (access, "Settings", functools.cache(Settings)), (BatchBuilder, "append", stamped),
    ]  # fmt: skip
    former = [(owner, name, getattr(owner, name)) for owner, name, _ in changed]
    for owner, name, value in changed:
        setattr(owner, name, value)
    make_record = logging.getLogRecordFactory()
    logging.setLogRecordFactory(_record_of_text)
    lines = _Lines(world)
    loggers = [(logger, logger.level) for logger in map(logging.getLogger, ("connectors", "stream"))]
    for logger, _ in loggers:
        logger.addHandler(lines)
        logger.setLevel(logging.INFO)
    collecting, hook, apart = gc.isenabled(), sys.unraisablehook, gc.get_freeze_count() > 0
    sys.unraisablehook = lambda _: None  # mode's generators complain when a service crashes
    gc.disable()
    if not apart:
        gc.freeze()
    try:
        yield
    finally:
        for logger, level in loggers:
            logger.removeHandler(lines)
            logger.setLevel(level)
        logging.setLogRecordFactory(make_record)
        random.setstate(chance)
        for owner, name, value in former:
            setattr(owner, name, value)
        for function, places, keywords in with_defaults:
            function.__defaults__, function.__kwdefaults__ = places, keywords
        for names, attribute, value in replaced:
            names[attribute] = value
        _give_back(sources, loaded)
        _dispose(world)
        asyncio.set_event_loop_policy(policy)
        if not apart:
            gc.unfreeze()
        sys.unraisablehook = hook
        if collecting:
            gc.enable()


@contextmanager
def collected() -> Iterator[None]:
    """Collect at the end what was made meanwhile; a collection of everything would take longer than many a world."""
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


def _give_back(sources: Mapping[Any, Any], loaded: set[str]) -> None:
    """Give the sources back to modules that were loaded meanwhile, and took what replaced them."""
    replaced = {id(simulated): source for source, simulated in sources.items()}
    for name in set(sys.modules) - loaded:
        names = getattr(sys.modules[name], "__dict__", {})
        for attribute, value in list(names.items()):
            if id(value) in replaced:
                names[attribute] = replaced[id(value)]


def _record_of_text(*args: Any, **fields: Any) -> logging.LogRecord:
    """Make a record that keeps nothing of the world alive: pytest holds records until a test has ended."""
    record = logging.LogRecord(*args, **fields)
    record.msg, record.args = record.getMessage(), None
    if record.exc_info:
        record.exc_text, record.exc_info = logging.Formatter().formatException(record.exc_info), None
    return record


class _Lines(logging.Handler):
    """Puts what the product logs on the time line."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if self._world.current is not None:
            self._world.log(self._world.current.name, record.getMessage())


def _dispose(world: World) -> None:
    """Let go of what is left, in silence: coroutines that nobody runs on end here, and complain.

    Services of mode that end here leave tasks on the event loop. These are dropped with the loop, and may leave others.
    """
    loops, disabled = asyncio.DefaultEventLoopPolicy(), logging.root.manager.disable
    asyncio.set_event_loop_policy(loops)
    logging.disable()
    try:
        with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            world.close()
            found = 1
            while found:
                loop = loops.new_event_loop()
                loops.set_event_loop(loop)
                found = gc.collect()
                loop.close()
    finally:
        logging.disable(disabled)
