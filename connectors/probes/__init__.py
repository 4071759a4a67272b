"""Asking sources whether they are alive, on the clock's grid: nothing else says so without telling of people."""
