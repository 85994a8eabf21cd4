"""Commands about graphs of jobs."""
