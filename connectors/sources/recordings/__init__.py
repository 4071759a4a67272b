"""Recordings of observations and counts: reading, replay and output."""
