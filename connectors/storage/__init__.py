"""Where observations, state and releases are stored: an embedded store, or Apache Kafka."""
