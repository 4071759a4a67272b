"""The verbs of the command line, one module for each group of verbs; each verb is a thin layer over a library call."""
