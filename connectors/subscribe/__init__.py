"""Reading an audience's releases: their order, and cursors to resume."""
