"""Simulated locks: agents take, renew, pass on, break and lose them while everything fails."""
