"""A stream message by message, exactly as the server keeps it: copied out, and put back."""
