"""Counts of people counters, which arrive as rows: rows are collected in windows, which the clock closes."""
