"""Webhooks and event streams of cloud systems, verified and passed on."""
