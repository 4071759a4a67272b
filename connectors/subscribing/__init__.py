"""How a subscriber reads an audience's releases from each home: in which order, and how far it has come."""
