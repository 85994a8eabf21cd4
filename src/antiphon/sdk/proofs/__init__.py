"""Proofs in a program: a job's proof, its bundle, and running it again to compare."""
