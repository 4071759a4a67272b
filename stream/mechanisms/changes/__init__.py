"""Counts with noise on changes: one price for a device's whole day."""
