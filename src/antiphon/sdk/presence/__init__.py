"""Who is online on a mesh, and who came and went: `mesh.presence`."""
