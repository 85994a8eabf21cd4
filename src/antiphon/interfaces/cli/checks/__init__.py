"""What `antiphon doctor` checks."""
