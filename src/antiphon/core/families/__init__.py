"""Families of ops: what the log can be about.

Each folder is one family: `ops` (what can be said, and where), `table` (what an op does to the
state, or why it does nothing), `words` (how it is told to people), and what else belongs to it
alone. Its `__init__` puts them together as one `Family`. Families know the shared core and never
one another; `antiphon.core.protocol` lists them.
"""
