"""What one run has besides its lease. A plain job uses `job_run` and `run_work` alone.

The rest is made on first use: its beats and the escalations of its score (spec §11), the timer of
its budget, its checkpoints, what it prints.
"""
