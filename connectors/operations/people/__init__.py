"""Calibration: a model of people from released counts, and its error."""
