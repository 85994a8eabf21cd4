"""One connection to a NATS server: protocol, login, reconnecting, requests, the bus.

Nothing here knows streams or the log.
"""
