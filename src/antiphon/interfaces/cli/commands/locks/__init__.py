"""Commands about locks."""
