"""What a job leaves behind: its artifacts, and what it printed."""
