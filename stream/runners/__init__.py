"""Runners, which drive the engine: the embedded runner, and the tasks and the Faust app of a worker on Kafka."""
