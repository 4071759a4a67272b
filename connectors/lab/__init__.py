"""Simulation, attacks, tuning and experiments; running a building needs none of it."""
