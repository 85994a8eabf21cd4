"""Permissions: the control state, delegations, chains and scopes.

UCAN itself is in `antiphon.core.ucan`; this folder is what its delegations mean on a mesh.
"""
