"""The policy file: what is released, to whom, at what price; it holds everything that changes a guarantee."""
