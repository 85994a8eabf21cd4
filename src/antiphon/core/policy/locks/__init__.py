"""Locks: whose turn it is, and how long a hold lasts."""
