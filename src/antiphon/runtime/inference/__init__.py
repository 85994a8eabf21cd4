"""Captures the model calls of handlers, in whatever process, thread or task they run.

    recorder      to whom the calls of the present context are told
    transports    the transports of httpx and httpx2 that tell them
    open_call     one call, from its request to the end of its answer
    credentials   what of a request is told, and which values must not be

A worker that runs nothing audited imports none of it.
"""
