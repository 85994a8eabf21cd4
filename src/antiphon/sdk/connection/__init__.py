"""This process's connection to a mesh, and how `Mesh` gets its namespaces from it."""
