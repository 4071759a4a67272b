"""Generation of a policy from a list of access points, for the operator to read and edit."""
