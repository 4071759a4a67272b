"""Counts of people counters: rows, collected in windows that the clock closes."""
