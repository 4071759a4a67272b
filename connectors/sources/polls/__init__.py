"""Polls of client tables: whole tables at fixed times, so that neither length nor duration of a table shows."""
