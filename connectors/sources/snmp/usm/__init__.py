"""SNMPv3 with the user-based security model: authentication, replay protection, decryption.

RFC 3412, 3414, 3826, 7860. Own code around the ciphers of ``cryptography``, because pysnmp updates an engine's time
before it checks the window, answers an inform before it is stored, passes on traps below a user's level, and forgets
everything at a restart.
"""
