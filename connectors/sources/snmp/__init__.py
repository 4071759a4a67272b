"""Traps from Wi-Fi controllers: decoding, receiving, and sending simulated ones."""
