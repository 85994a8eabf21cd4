"""Messages between agents: what `Mesh` offers to send, read, ask and answer (docs/messages.md)."""
