"""Webhooks, scanning APIs and event streams of cloud systems: received, verified, passed on to an ingest."""
