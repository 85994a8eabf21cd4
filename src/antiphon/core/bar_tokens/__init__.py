"""Credentials that end with their bars: the token, and how many bars have passed."""
