"""What is wrong with an installation, as far as one can tell without touching what runs."""
