"""Who is online: what a node says of itself, and what follows from its silence (spec §10).

Pure. No verdict depends on any of it.
"""
