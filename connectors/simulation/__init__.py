"""The simulated building as files, policy and traps."""
