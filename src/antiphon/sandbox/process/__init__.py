"""A started command: its output, its resource use, its end, with or without a sandbox."""
