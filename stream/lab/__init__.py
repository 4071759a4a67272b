"""Simulator, attackers, tuning and evaluation: not needed to run a building."""
