"""Simulation, attacks, tuning and experiments on recordings and simulated buildings. Running a building does not
need it."""
