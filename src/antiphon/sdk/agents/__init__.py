"""Agents: who on a node holds a lock, writes a document, reads an inbox."""
