"""Counts that come row by row while they are counted: gathered into windows, which the clock closes."""
