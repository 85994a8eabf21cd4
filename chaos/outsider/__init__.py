"""`chaos outsider`: a contractor with raw NATS and its own login gets only what it was granted.

`target` is the mesh that is attacked, `attempt` what an attempt and its outcome are, `attacks` the
attempts themselves, and `final_checks` what must hold after all of them.
"""
