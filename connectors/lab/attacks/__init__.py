"""Attacks on releases of a recording: whom an attacker finds, and a lower bound on epsilon from membership trials."""
