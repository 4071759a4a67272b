"""The storage on Apache Kafka."""
