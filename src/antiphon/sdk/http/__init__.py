"""What an HTTP interface needs of a running node: its state, its numbers, and who may ask."""
