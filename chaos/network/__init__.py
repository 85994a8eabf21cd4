"""Networks that fail on purpose, and a raw client: what stands between processes of a run.

Here lives what carries bytes: a TCP proxy that delays and cuts, network namespaces with a switch
between them that loses packets, and a NATS connection that sends whatever frames it is given. It
knows no jobs and no commands.
"""
