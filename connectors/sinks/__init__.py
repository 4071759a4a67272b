"""Releases handed on to other people's tools: each at least once, in order, from where the last run came to."""
