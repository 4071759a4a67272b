"""Edges: SNMP, Kafka, the embedded store, the command line. They import stream, never the reverse."""
