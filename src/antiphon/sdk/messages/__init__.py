"""Messages between agents: what `Mesh` offers to send, read, ask and answer (docs/do/messages.md)."""
