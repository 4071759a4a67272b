"""Seeing private releases: an HTTP service of its own, its history, its page. It reads what audiences may read."""
