"""Meshes to measure on: their servers, their gate, their members, and a worker process.

What several commands use; it measures nothing itself.
"""
