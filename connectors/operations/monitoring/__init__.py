"""Monitoring of processes: what each one checks for its readiness and its metrics."""
