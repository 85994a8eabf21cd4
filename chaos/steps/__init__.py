"""`chaos steps`: jobs of many steps, while their workers are killed."""
