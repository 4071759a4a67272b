"""Threshold decisions with guarantees, and what remains unknown of a person's location after them."""
