"""``python -m connectors`` is ``tacet``."""

from connectors.cli.main import main

main()
