"""The engine of one partition: its state, its snapshot, the check of replays, and the rotation of keys and policies."""
