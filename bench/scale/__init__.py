"""`bench scale`: what a large mesh costs, computed from measured unit costs, and cells simulated.

`arithmetic` is the sums of docs/understand/scale.md, `cells` the simulation of a hundred cells.
"""
