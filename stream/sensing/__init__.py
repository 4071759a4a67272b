"""From observations to presence, occupancy and the attributes of a room's day."""
