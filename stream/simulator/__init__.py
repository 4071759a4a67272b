"""A simulated building: seeded people, their devices, what the access points notice, and the truth."""
