"""The regime-switching filter: exact Bayesian smoothing of noisy counts."""
