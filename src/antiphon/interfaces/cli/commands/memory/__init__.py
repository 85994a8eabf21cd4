"""Commands about shared memory."""
