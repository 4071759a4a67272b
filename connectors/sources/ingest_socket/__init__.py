"""Sightings that another process has verified, received through a local socket."""
