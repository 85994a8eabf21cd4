"""`bench latency`: how soon a handler starts after a call, and what idle workers cost.

`growth` and `fleet` are the forms with `--growth` and `--fleet`.
"""
