"""``python -m connectors`` is ``tacet``."""

from connectors.cli import main

main()
