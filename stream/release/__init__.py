"""Converts windows and days to private records, and charges them."""
