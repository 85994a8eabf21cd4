"""The archive in a program: opened where it lies, with or without its mesh (docs/do/archive.md)."""
