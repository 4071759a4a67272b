"""The tuner on a recording: what is read, what is searched for, what attackers make of it, and how it is told."""
