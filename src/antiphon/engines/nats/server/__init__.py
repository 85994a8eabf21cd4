"""A nats-server of our own: its process, configuration, certificates, accounts and logins."""
