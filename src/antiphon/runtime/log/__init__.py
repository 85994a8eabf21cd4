"""One node's access to the log: reading and judging lanes, authoring, and writing."""
