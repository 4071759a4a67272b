"""Reports on policies: guarantees, differences, the plan of a day, the quality of its releases, and contracts."""
