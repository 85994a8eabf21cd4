"""Commands for messages between agents."""
