"""Messages between agents: sending, reading, asking and answering (docs/do/messages.md)."""
