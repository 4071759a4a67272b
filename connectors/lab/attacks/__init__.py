"""Attacks on releases of a recording: people found, and bounds on epsilon."""
