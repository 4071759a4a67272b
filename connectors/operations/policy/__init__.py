"""Reports on policies: guarantees, differences, plans, quality, and contracts."""
