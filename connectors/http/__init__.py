"""Shared by all HTTP services: a listener, limits on connections, bodies and rates, and one form of refusals."""
