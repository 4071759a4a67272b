"""Run schedules: ``python -m tests.simulation [--level wire|port] [--seed N] [--runs N] [--shrink] [--lines]``.

``--kept WORDS`` runs kept schedules instead of drawn ones, ``--tests FILE`` a file of tests until one fails.

With ``--put-back NAME`` a mutant of ``tests/mutants`` is put into the code first; the first run that fails ends it.

Prints the problems of each run that has any; with ``--lines`` the time line, with ``--shrink`` the shortest schedule
that still fails. Exit code 1 if any run had a problem.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time

import pytest

from tests.simulation.put_back import put_back


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--level", choices=("port", "wire"), default="wire")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--digest", action="store_true", help="print the digest of each run")
    parser.add_argument("--put-back", metavar="MUTANT", help="run with a fault of the catalogue, until it is found")
    parser.add_argument("--kept", metavar="WORDS", help="run the kept schedules whose name contains these words")
    parser.add_argument("--tests", metavar="FILE", help="run the tests of this file until one fails")
    options = parser.parse_args()
    if options.put_back:
        put_back(options.put_back)
    if options.tests is not None:
        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", options.tests]))
    from tests.simulation.runs import LEVELS, run_kept
    from tests.simulation.schedules import as_json, draw, kept_schedules, shrink

    logging.getLogger().addHandler(logging.NullHandler())
    if options.kept is not None:
        for kept in (each for each in kept_schedules() if options.kept in each.name):
            outcome = run_kept(kept)
            print("\n".join(outcome.lines) if options.lines else "", *outcome.problems[:10], sep="\n")
            if outcome.problems:
                print(f"{options.put_back or kept.found}: found by the kept schedule {kept.name!r}")
                return 1
        return 0
    run, failed = LEVELS[options.level], 0
    began, faults, virtual, digests = time.process_time(), 0, 0.0, set()
    for seed in range(options.seed, options.seed + options.runs):
        outcome = run(seed, None)
        faults += len(outcome.events)
        virtual += outcome.seconds
        digests.add(outcome.digest)
        if options.digest:
            print(seed, outcome.digest)
        if options.lines:
            print("\n".join(outcome.lines))
        if not outcome.problems:
            continue
        failed += 1
        print(f"seed {seed}:", *outcome.problems[:10], sep="\n  ", flush=True)
        if options.shrink:
            shortest = shrink(seed, draw(seed, options.level), run)
            print("\n".join(run(seed, shortest).lines))
            print(json.dumps(as_json(shortest)))
        if options.put_back:
            print(f"{options.put_back}: found at the {options.level} in run {seed - options.seed + 1}")
            return 1
    used = time.process_time() - began
    print(
        f"{options.runs} runs, {len(digests)} distinct interleavings, {faults} faults, "
        f"{virtual:.0f} s of virtual time, {used:.1f} s of CPU ({faults / used:.1f} faults a second); "
        f"{failed} runs failed"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
