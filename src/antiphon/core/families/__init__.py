"""Families of ops: what records on the log can be about.

Each folder is one family: `ops` (the ops and their subjects), `table` (what an op does to the
state, or why it is rejected), `words` (a sentence for each op), and whatever else only this family
needs. Its `__init__` combines them into one `Family`. Families import the shared core and never
each other; `antiphon.core.protocol` lists them.
"""
