"""Tuning: the strongest privacy that reaches a utility, from candidates and runs, with the certainty of the answer."""
