"""The dashboard in a real browser: how large its pages are, how soon they are drawn, what is wrong.

What is where: `chromium` (drives a browser), `axe` (checks accessibility), `full_replica` (a
million jobs to show), `command` (`python -m bench pages`), `screenshots` (the pictures in docs).
"""
