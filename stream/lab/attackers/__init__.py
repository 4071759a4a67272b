"""Attacks, measured: what an attacker learns of people's locations from counts and prior knowledge."""
