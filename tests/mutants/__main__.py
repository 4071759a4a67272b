"""``make mutants``: try the whole catalogue, or what a change touches; exit 1 when something survives."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from .catalogue import FOLDER, CatalogueError, Mutant, locate, read_catalogue
from .run import BROKEN, KILLED, SURVIVED, Result, run
from .standard import modules, nearest, quickest, some_of

ROOT = FOLDER.parents[1]
MOST_NEAR = 3
"""So many of the tests that the catalogue names for a module are tried on each standard mutant."""


def main() -> int:
    """Read the options, try the mutants, say what became of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--changed", metavar="BASE", help="only entries whose file or nearest tests differ from BASE")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="only entries with NAME in theirs")
    parser.add_argument("--at-most", type=int, metavar="N", help="of more than N entries, N spread over them all")
    parser.add_argument("--standard", metavar="PATH", action="append", default=[], help="standard mutants of it")
    parser.add_argument("--of-each", type=int, default=10, metavar="N",
                        help="with --standard: as many as a module lacks to N entries of the catalogue")  # fmt: skip
    parser.add_argument("--tests", action="append", default=[], help="with --standard: these, not the nearest ones")
    parser.add_argument("--list", action="store_true", help="say which would be tried, and try none")
    parser.add_argument("--untouched", action="store_true", help="list the modules that decide, and have no entry")
    parser.add_argument("--jobs", type=int, default=1, help="how many at the same time")
    parser.add_argument("--passed", action="store_true", help="do not run the tests without mutants first: they passed")
    options = parser.parse_args()
    if options.untouched:
        return _list_untouched()
    try:
        known = (
            _standard(options.standard, options.of_each, tuple(options.tests)) if options.standard else read_catalogue()
        )
        mutants = _wanted(known, options.only, options.changed)
    except CatalogueError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    if not mutants:
        print("mutants: none to try")
        return 0
    if options.at_most is not None and options.at_most < len(mutants):
        print(f"mutants: {options.at_most} of {len(mutants)}, the rest by make nightly")
        mutants = spread(mutants, options.at_most)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.promise}; {' '.join(mutant.tests) or 'NO TEST'}")
        return 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tacet-mutants-") as folder:
        results = run(mutants, ROOT, Path(folder), options.jobs, _tell, passed=options.passed)
    count = {outcome: sum(result.outcome == outcome for result in results) for outcome in (KILLED, SURVIVED, BROKEN)}
    reported = ", ".join(f"{number} {outcome}" for outcome, number in count.items())
    print(f"mutants: {len(results)} tried, {reported}, in {time.monotonic() - started:.0f} s")
    return int(count[KILLED] < len(results))


def _standard(paths: list[str], of_each: int, tests: tuple[str, ...]) -> list[Mutant]:
    """Return the standard mutants that modules lack; CatalogueError where no test is near one.

    Near are the tests that the catalogue names for a module, and those that import it.
    """
    entries: dict[str, list[Mutant]] = {}
    for entry in read_catalogue():
        entries.setdefault(entry.file, []).append(entry)
    found = []
    for made in modules(ROOT, tuple(paths)):
        known = entries.get(str(made.file), [])
        named = Counter(test.partition("::")[0] for entry in known for test in entry.tests)
        near = [test for test, _ in named.most_common(MOST_NEAR)]
        lacking = some_of(made, max(0, of_each - len(known))) if made.decisions else []
        found += [replace(mutant, tests=tests or quickest({*near, *mutant.tests})) for mutant in lacking]
    if unnamed := sorted({mutant.file for mutant in found if not mutant.tests}):
        raise CatalogueError(f"--tests: must be given, for no test imports {', '.join(unnamed)}")
    return found


def _list_untouched() -> int:
    """Print of each module that decides and has no entry how much it decides, and who tries it."""
    touched = {str(locate(mutant, ROOT).file) for mutant in read_catalogue()}
    every = list(modules(ROOT))
    untouched = [made for made in every if made.decisions and str(made.file) not in touched]
    print("decisions  standard mutants  module  nearest tests")
    for made in sorted(untouched, key=lambda made: (-made.decisions, made.file)):
        tests = " ".join(nearest(made.file, ROOT, 2)) or "none"
        print(f"{made.decisions:9}  {len(made.mutants):16}  {made.file}  {tests}")
    print(f"{len(every)} modules, {len(touched)} touched; of the others {len(untouched)} decide")
    return 0


def spread(mutants: list[Mutant], number: int) -> list[Mutant]:
    """Return ``number`` of the mutants (1 … all of them), at equal distances in the catalogue's order."""
    return [mutants[at * len(mutants) // number] for at in range(number)]


def _wanted(mutants: list[Mutant], only: list[str], base: str | None) -> list[Mutant]:
    if only:
        mutants = [mutant for mutant in mutants if any(name in mutant.name for name in only)]
    if base is None:
        return mutants
    changed = _changed(base)
    return [mutant for mutant in mutants if changed & _touches(mutant)]


def _touches(mutant: Mutant) -> set[str]:
    """Return the files whose change may decide about a mutant."""
    tests = {test.partition("::")[0] for test in mutant.tests}
    return {str(locate(mutant, ROOT).file), f"tests/mutants/{mutant.catalogue}", *tests}


def _changed(base: str) -> set[str]:
    done = subprocess.run(
        ["git", "diff", "--name-only", base, "--"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CatalogueError(f"--changed: git must know {base}: {done.stderr.strip()}")
    return set(done.stdout.splitlines())


def _tell(result: Result) -> None:
    output = "" if result.outcome == KILLED else f": {result.mutant.promise}; {result.why}"
    print(f"{result.outcome:8} {result.seconds:5.1f} s  {result.mutant.name}{output}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
