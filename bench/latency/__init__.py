"""`bench latency`: how soon a handler starts after a call, and what idle workers cost.

`setup` and `worker` are one idle worker process on a mesh of its own; `growth` and `fleet` are the
forms with `--growth` and `--fleet`.
"""
