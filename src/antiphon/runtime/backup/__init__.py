"""Backups: a mesh in a folder, checked without the mesh; its keys apart, encrypted."""
