"""Sightings that another process has checked, handed over through a socket of this machine."""
