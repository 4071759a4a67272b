"""The verbs of the command line, one module for each group.

Each verb is a thin layer over a library call.
"""
