"""Who may do what: the control state, delegations, chains, scopes and what they admit.

UCAN itself is `antiphon.core.ucan`; here is what its delegations mean on a mesh.
"""
