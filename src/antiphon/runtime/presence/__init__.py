"""Who is online: roll calls, and the signed messages of workers and full nodes on the bus."""
