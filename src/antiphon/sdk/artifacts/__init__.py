"""The files that jobs read and write: `mesh.artifacts`."""
