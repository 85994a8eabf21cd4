"""Keys and signed texts in the forms that NATS servers read."""
