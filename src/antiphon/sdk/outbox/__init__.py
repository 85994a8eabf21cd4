"""`mesh.outbox`: what waits on this machine until the mesh can be reached (docs/offline.md)."""
