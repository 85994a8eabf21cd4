"""Proofs: the signed statement about a run, its outputs, and Merkle trees.

`antiphon.core.bundle` checks a whole bundle.
"""
