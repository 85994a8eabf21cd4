"""`chaos documents`: two agents write the same documents under every strategy, and are killed."""
