"""`chaos extremes`: records and messages at the ends of what their schemas admit.

Here lives what draws such values, writes them with real rights through a real server, and compares
what everybody makes of them. Nothing here knows which value is harmful.
"""
