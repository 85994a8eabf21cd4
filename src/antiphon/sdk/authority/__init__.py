"""Rights in a program: delegate, revoke, list who holds what, and change the mesh's rules."""
