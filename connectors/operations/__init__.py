"""What operators use: inventory, doctor, recovery, plans and audit reports."""
