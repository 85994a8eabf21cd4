"""Our own nats-server: its process, configuration, certificates, accounts and logins."""
