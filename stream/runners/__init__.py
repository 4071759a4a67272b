"""Runners, which drive the engine: embedded, or a worker on Kafka."""
