"""`antiphon doctor`; what it checks is in `interfaces/cli/checks`."""
