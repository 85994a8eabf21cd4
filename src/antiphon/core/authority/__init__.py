"""Permissions: the control state, delegations, chains and scopes.

UCAN itself is in `antiphon.core.ucan`; this folder is what its delegations mean on a mesh.
It imports no family. The commands of jobs, locks and memory are here because the bus and the gate
go by them too, and know no ops.
"""
