"""The gate: lets machines in, issues and revokes logins, and relays members' control records."""
