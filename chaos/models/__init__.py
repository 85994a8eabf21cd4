"""`chaos audit`: agents call models, and whatever a worker leaves out is noticed.

The folder is not called as the command is: `chaos/audit` is what all commands share.
"""
