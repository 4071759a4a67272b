"""Sinks deliver releases to other systems, at least once and in order."""
