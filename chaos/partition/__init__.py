"""`chaos partition`: workers whose network to the server is late, half open, cut or lossy.

`trial` is what both ways have in common; `proxy_faults` and `namespace_faults` are the two ways.
"""
