"""Real processes, a real server, and things going wrong on purpose."""
