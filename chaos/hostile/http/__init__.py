"""`chaos hostile --only reader --right R --over http`: what a right opens over HTTP, as an attack.

`member` has the keys and what they sign. `tokens`, `signed` and `anybody` have the requests, by
what opens them; `floods` says which of them a right makes. `client`, `prober` and `sink` are
processes.
"""
