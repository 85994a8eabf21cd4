"""The full node: its replica, overdue jobs, seals, evictions and the other services beside it."""
