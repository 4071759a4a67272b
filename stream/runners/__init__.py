"""What drives the pipeline: partitions with their snapshots, the worker on Kafka, the embedded runner, backfill."""
