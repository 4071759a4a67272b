"""From a list of access points to a policy that one can read and change."""
