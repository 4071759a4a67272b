"""Experiments on simulated data, whose truth is known: results as numbers, tables and figures."""
