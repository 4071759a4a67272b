"""A simulated building: seeded people, their devices, the events at access points, and the truth."""
