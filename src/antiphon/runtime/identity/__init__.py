"""What a node is on disk: its state directory, keys, secrets, clock and mesh genesis."""
