"""The verbs of the command line: each a few lines around a library call."""
