"""Tells light readers where long lanes can be entered (spec §7.5)."""
