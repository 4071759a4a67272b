"""SNMPv3 with the user-based security model: who sent it, that it is new, what it says; RFC 3412, 3414, 3826, 7860."""
