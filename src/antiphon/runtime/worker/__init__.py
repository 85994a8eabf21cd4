"""The worker: its life, its queues and credits, and what it does with each delivery.

Begin with `job_deliveries`: a delivery from pull to acknowledgement, in one file. A `Tenure` keeps
the lease meanwhile: without a renewal it stops the work before the lease ends, and the worker
writes nothing. A full node writes `job.expire` (`runtime.node.overdue_jobs`), by the rule
`_expire_held` in `core.families.jobs.table`. Which worker tries first is in `rendezvous`.
"""
