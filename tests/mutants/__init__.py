"""Mutants: small wrongs in lines that carry a promise, each of which some test must notice."""
