"""One run of a job in time: its phrase, its limits, its checkpoints, its claims (spec §11)."""
