"""What somebody learns of where people are, from counts and from what was known before: attacks, measured."""
