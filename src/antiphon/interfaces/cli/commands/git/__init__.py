"""Jobs in a Git repository."""
