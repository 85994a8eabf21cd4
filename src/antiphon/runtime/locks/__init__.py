"""Locks at run time: taking them in turn, renewing them, losing them in time (spec §10).

lock_line     one lock's lane as this process knows it, and what it writes there
lock_hold     a hold that is renewed until it is released or lost
lock_queue    what waiters tell each other on the bus
lock_wait     waits until a lock is free and it is this waiter's turn
"""
