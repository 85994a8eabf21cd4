"""Real processes, a real server, and faults and attacks on purpose (docs/understand/chaos.md).

A folder for each command, with its `command.py`; what several commands share is in `cluster`
(servers, worker processes, jobs), `network` (faults and raw connections) and `audit` (what really
happened). Commands do not import each other; contracts in pyproject.toml hold this.
"""
