"""The policy file: what is released, to whom, at what price; it contains everything that changes a guarantee."""
