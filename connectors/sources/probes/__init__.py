"""Probes of sources, on the clock's grid.

No other sign of life is independent of people.
"""
