"""Keyed, rotating pseudonyms for radio addresses."""
