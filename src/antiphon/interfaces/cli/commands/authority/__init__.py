"""Commands about rights: delegate and revoke them, and set rules, routes and the coordinator."""
