"""Computes presence, occupancy and the attributes of a zone's day from observations."""
