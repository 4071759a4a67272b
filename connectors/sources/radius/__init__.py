"""RADIUS accounting from controllers and access points: decoding, receiving, answering."""
