"""The engine of one partition: state, snapshot, replay check, and rotation."""
