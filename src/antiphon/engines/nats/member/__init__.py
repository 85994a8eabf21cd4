"""The engine of a member with limited permissions: reads and writes go through the gate.

The messages between member and gate are defined here, for both sides.
"""
