"""`mesh.outbox`: what waits on this machine until the mesh can be reached (docs/do/offline.md)."""
