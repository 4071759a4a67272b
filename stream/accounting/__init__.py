"""The accounting of privacy: ledger, account, composition, and measures of leakage."""
