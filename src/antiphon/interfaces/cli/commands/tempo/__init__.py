"""Commands about time in beats."""
