"""Audit of ledgers: audit bundles of stores, clusters and files, their verification, and signed heads."""
