"""The full node: overdue jobs, seals, evictions and the other services beside it."""
