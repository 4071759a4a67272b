"""The simulated building as files, policy, lessons and traps."""
