"""Run the embedded runner up to a given window: ``python -m tests.acceptance.one_run FOLDER STORE SEED``.

It opens the store with the key and policy of the folder, says ``open``, and then, for each number on its standard
input, takes so many messages and says ``done``. An error ends it with 1 and its text. The seed says who is seen.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from connectors.storage.embedded.runner import opened
from stream.errors import TacetError
from stream.release.validation import load_policy
from tests.support.small_building import COUNTS, messages, people, policy_text

TEXT = policy_text(COUNTS)


def main() -> None:
    """Do it."""
    folder, store, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    policy = load_policy(TEXT)
    coming = messages(people(seed, hours=3, devices=4), policy)
    try:
        with opened(policy, folder / "key", folder / store) as (runner, _):
            print("open", flush=True)
            for line in sys.stdin:
                for message in islice(coming, int(line)):
                    runner.process(message, durable=False)
                print("done", flush=True)
    except TacetError as error:
        print(error, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
