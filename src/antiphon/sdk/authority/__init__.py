"""Permissions in a program: delegate, revoke, list who may do what, change the mesh's rules."""
