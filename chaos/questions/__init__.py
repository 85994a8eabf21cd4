"""`chaos questions`: people are asked while everything around them is killed."""
