"""The log and the state derived from it, in SQLite beside a node; and what can be asked of it."""
