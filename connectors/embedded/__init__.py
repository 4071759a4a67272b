"""One process and one folder as the home of the log."""
