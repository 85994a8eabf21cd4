"""What several commands run on: their frame, servers, a mesh, processes and a load of jobs.

Here lives what starts and stops real processes and what gives them work. It knows no command and
injects no fault by itself, beyond killing and stopping what it started when told to.
"""
