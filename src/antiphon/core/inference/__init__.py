"""Evidence of model calls (spec §12). Whether a completion has it is judged by `families.jobs`.

    snapshot         the snapshot of one call, and its published schema

Nothing here decides a verdict.
"""
