"""The embedded storage: one process and one folder with SQLite files."""
