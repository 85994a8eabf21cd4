"""The full node: replica, overdue jobs, seals, evictions and what else keeps a mesh going."""
