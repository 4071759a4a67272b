"""Randomised and post-processing steps: exact keyed noise, PeGaSus, the filter, OSDPRR, the sparse vector."""
