"""What waits on disk until the log has it: items, their files, and how they are sent (spec §10).

An item is tentative: nobody but this machine knows of it. It is sent in the order in which it was
made, and its end is kept until a person was told.
"""
