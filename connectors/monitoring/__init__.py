"""Metrics and health for operators; figures reveal nothing about people."""
