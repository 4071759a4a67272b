"""Counts with noise on changes: one price pays for a device's whole day, however long the device stays."""
