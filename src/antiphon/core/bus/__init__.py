"""Messages that are not on the log: the subjects of the bus and the signed envelope.

Nothing on the bus is stored, and no verdict depends on it.
"""
