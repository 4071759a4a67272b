"""Sinks deliver releases to other systems: each release at least once and in order, resuming from a cursor."""
