"""What stays the same while the code is rearranged: names that others use, the form of outputs, released bytes."""
