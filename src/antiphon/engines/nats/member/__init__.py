"""The engine of a member with limited rights: reads and writes that go through the gate.

The messages between member and gate are defined here, for both sides.
"""
