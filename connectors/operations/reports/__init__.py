"""Reports for people: status, plans, audits and recovery."""
