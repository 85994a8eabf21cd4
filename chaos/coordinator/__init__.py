"""`chaos coordinator`: the coordinator is killed and another named, again and again."""
