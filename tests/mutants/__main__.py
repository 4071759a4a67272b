"""``make mutants``: try the whole catalogue, or what a change touches; exit 1 when something survives."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .catalogue import FOLDER, CatalogueError, Mutant, locate, read_catalogue
from .run import BROKEN, KILLED, SURVIVED, Result, run

ROOT = FOLDER.parents[1]


def main() -> int:
    """Read the options, try the mutants, say what became of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--changed", metavar="BASE", help="only entries whose file or nearest tests differ from BASE")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="only entries with NAME in theirs")
    parser.add_argument("--at-most", type=int, metavar="N", help="of more than N entries, N spread over them all")
    parser.add_argument("--jobs", type=int, default=1, help="how many at the same time")
    options = parser.parse_args()
    try:
        mutants = _wanted(read_catalogue(), options.only, options.changed)
    except CatalogueError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    if not mutants:
        print("mutants: none to try")
        return 0
    if options.at_most is not None and options.at_most < len(mutants):
        print(f"mutants: {options.at_most} of {len(mutants)}, the rest by make nightly")
        mutants = spread(mutants, options.at_most)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tacet-mutants-") as folder:
        results = run(mutants, ROOT, Path(folder), options.jobs, _tell)
    count = {outcome: sum(result.outcome == outcome for result in results) for outcome in (KILLED, SURVIVED, BROKEN)}
    told = ", ".join(f"{number} {outcome}" for outcome, number in count.items())
    print(f"mutants: {len(results)} tried, {told}, in {time.monotonic() - begun:.0f} s")
    return int(count[KILLED] < len(results))


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
    said = "" if result.outcome == KILLED else f": {result.mutant.promise}; {result.why}"
    print(f"{result.outcome:8} {result.seconds:5.1f} s  {result.mutant.name}{said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
