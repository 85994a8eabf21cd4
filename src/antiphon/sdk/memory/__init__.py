"""Shared memory: documents that agents write together (docs/do/memory.md)."""
