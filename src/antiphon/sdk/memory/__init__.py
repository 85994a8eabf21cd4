"""Shared memory: documents that agents write together (docs/memory.md)."""
