"""What runs a job's work: handlers in the event loop, in threads, or in child processes.

An executor gets one assignment and returns one result. It does not know about leases.
"""
