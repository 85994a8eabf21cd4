"""The worker: its queues and credits, its claims, and one tenure from claim to end.

Without a renewal `tenure` stops the work before the lease ends, and the worker writes nothing: a
full node writes `job.expire` (`runtime.node.overdue_jobs`), by the rule `_expire_held` in
`core.families.jobs.table`. Which worker tries first is in `rendezvous`.
"""
