"""Recovery: what prevents a run, and the remedies with their prices."""
