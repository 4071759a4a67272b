"""Generation of a policy from a list of access points."""
