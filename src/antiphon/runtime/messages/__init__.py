"""Messages between agents: the gate that stores and hands them out, and its two clients."""
