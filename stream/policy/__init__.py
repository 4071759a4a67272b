"""The policy file: what is released, to whom, at what price.

It contains everything that changes a guarantee.
"""
