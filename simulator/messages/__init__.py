"""Simulated inboxes: agents write to one another while gates, agents and lines fail."""
