"""Shared memory: reads documents, writes them, and tells what becomes of them (spec §10)."""
