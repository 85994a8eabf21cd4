"""Jobs of others: found by the beginning of their ids, and listed."""
