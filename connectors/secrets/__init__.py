"""Files that only their owner can read: private files, tables of secrets, locked files."""
