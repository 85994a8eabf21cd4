"""The archive beside a mesh: the coordinator's full node writes it, anyone reads it (spec §7.5)."""
