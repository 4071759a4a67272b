"""The attackers' laboratory: a recording, a policy and an attacker in; whom it finds, and what can be shown, out."""
