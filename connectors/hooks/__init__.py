"""Webhooks, scanning interfaces and event streams of systems in the cloud: heard, checked, handed over to an ingest."""
