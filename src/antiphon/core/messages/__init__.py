"""Messages between agents: envelopes, registers, inboxes, limits and who may send (spec §10).

Pure: the gate asks and carries out (`runtime.messages`).
"""
