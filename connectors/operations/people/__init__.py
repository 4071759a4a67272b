"""Calibration: a model of people from released counts of devices, and its error on days that were held back."""
