"""Shared by all HTTP services: listener, limits, and the form of refusals."""
