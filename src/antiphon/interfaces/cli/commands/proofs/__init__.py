"""Commands about proofs: show, export and verify them, and run a job again to compare."""
