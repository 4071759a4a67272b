"""Where observations come from: traps, accounting, webhooks, collectors, counters and recordings."""
