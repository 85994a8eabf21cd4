"""`chaos workers`: workers and servers are killed and stopped at random while jobs run."""
