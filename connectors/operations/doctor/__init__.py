"""Checks of an installation that do not interfere with running processes."""
