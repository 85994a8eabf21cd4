"""Keys and JWTs in the forms that NATS servers read."""
