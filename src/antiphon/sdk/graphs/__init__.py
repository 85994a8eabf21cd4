"""Graphs of jobs: built in plain code or read from a file, checked whole, submitted together."""
