"""`chaos messages`: agents write to one another while agents, gate and server are killed."""
