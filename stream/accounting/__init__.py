"""What has been spent and what has leaked: ledger, account, leakage measures."""
