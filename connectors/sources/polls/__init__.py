"""Polls of client tables: whole tables at fixed times.

Neither length nor duration of a table shows.
"""
