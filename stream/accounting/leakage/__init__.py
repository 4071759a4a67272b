"""Closed forms of leakage: they read models and numbers, never a ledger."""
