"""The worker: its queues and credits, its claims, and one tenure from claim to end.

When a lease ends, `tenure` stops the work and `tenure_runner` gives the job back; a full node's
part is in `runtime.node.overdue_jobs`, the rule in `core.families.jobs.table`. Which worker tries
first is in `rendezvous`.
"""
