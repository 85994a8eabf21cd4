"""The side that submits: put a job on the mesh, wait for its end, cancel it, retry it."""
