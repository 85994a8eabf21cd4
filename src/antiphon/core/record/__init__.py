"""What a record is made of: canonical bytes, ids, signatures, subjects, ops and verdicts.

Nothing here knows a family, a delegation or the mesh's state.
"""
