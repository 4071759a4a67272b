"""Private occupancy streams: sensing, private release and the account of what has leaked."""
