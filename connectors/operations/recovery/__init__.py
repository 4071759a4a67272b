"""Recovery: what prevents a run from continuing, and the remedies with their prices, for both storages."""
