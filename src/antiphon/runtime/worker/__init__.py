"""The worker: its queues and credits, its claims, and one tenure from claim to end.

What happens when a lease ends is in `tenure`; which worker tries first is in `rendezvous`.
"""
