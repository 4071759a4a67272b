"""Recorded observations and counts, in and out."""
