"""Metrics and health for operators: figures that reveal nothing about people, and whether a service is well."""
