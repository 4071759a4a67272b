"""Probes of sources, on the clock's grid: no other sign of life is independent of people."""
