"""The SDK without `await`, for Django, Flask, scripts and notebooks: the same names and types.

Every call runs on an event loop in a thread of this process. What belongs to the process before a
fork (the loop, its connections, its key) is never used in the child.
"""
