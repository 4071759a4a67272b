"""Closed forms of leakage, computed from models and numbers, never from a ledger."""
