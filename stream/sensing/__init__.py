"""From observations to presence, occupancy and the attributes of a zone's day."""
