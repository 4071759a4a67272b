"""The part that all processes share: logs and signals."""
