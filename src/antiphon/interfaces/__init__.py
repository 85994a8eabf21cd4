"""Interfaces for people and programs, such as the command line; thin, on top of the SDK."""
