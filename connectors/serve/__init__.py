"""The HTTP service of private releases: API, history, event streams and page.

It reads only what its audiences may read.
"""
