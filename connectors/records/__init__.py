"""Released records as readers see them: validated fields, the laws of their noise, and bands."""
