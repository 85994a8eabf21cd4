"""Locks for programs: one holder at a time, with a fence for what the lock protects."""
