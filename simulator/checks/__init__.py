"""The second reading of the log: laws and a referee, written without the core."""
