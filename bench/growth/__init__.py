"""`bench growth`: what becomes more expensive as a mesh grows, along one axis at a time.

`jobs` is many jobs through one mesh, `axes` everything else that a mesh may have many of.
"""
