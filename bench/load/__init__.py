"""`bench load`: the highest steady rate at which jobs start soon, and what happens at twice that.

`command` chooses the rates, `arrivals` counts what arrives and how long it waited.
"""
