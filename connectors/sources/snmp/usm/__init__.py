"""SNMPv3 with the user-based security model: authentication, replay protection, decryption.

RFC 3412, 3414, 3826, 7860.
"""
