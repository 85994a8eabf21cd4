"""A job's results: its artifacts, and what it printed."""
