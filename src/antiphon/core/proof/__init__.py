"""Proofs: the signed statement of a run, its outputs, and Merkle trees.

Checking a whole bundle is `antiphon.core.bundle`.
"""
