"""Tuning: the strongest privacy that reaches a utility, with its certainty."""
