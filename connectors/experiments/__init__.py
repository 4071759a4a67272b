"""Experiments on simulated data, whose truth is known: what they find, as numbers, tables and figures."""
