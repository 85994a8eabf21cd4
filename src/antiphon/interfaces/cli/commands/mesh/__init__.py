"""Commands about the mesh as a whole: create, host, join, check and recover it."""
