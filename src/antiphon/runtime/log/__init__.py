"""One node's access to the log: reading and judging lanes, authoring, and the one way to write."""
