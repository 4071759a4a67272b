"""Apache Kafka as the home of the log."""
