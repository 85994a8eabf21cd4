"""`chaos hostile`: members with a real login and bad intentions delay jobs and lose none.

A hostile worker has its attacks in `attacks`, on the mesh of `target`; a member that may only read
is in `reader`.
"""
