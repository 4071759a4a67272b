"""Key files, data keys and signing keys."""
