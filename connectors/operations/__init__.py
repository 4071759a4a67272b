"""Checks and reports for operators: doctor, recovery, status, audits, policies, and inventories."""
