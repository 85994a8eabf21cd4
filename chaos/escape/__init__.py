"""`chaos escape`: programs that try to get out of a command's sandbox, or to exhaust it.

`programs` run inside, `targets` are what they could reach outside, `probes` says which program
tries what and which limit holds it, and `attack` runs one.
"""
