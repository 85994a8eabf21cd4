"""`bench many`: thousands of jobs submitted and awaited by one process, in both ways."""
