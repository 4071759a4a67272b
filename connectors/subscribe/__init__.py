"""Reading an audience's releases from a store, Kafka or the service: their order, and cursors to resume."""
