"""What the dashboard's pages show, as plain data: interfaces only draw it."""
