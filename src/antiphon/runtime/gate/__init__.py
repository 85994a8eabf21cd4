"""The gate: admits machines, issues and revokes logins, and relays members' control records."""
