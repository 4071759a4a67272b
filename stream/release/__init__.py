"""Converts windows and days to private records: plans, budgets, charges, and the account of the spending."""
