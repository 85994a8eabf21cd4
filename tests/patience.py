"""How long tests wait for what must happen. No verdict hangs on it."""

PATIENCE_S = 300.0
"""More than anything takes on a machine that is slow, and busy with other things."""
NEVER_S = 3600.0
"""Longer than any test may last: what ends sooner did not wait for it."""
