"""Questions to people."""
