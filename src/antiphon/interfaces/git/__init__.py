"""Jobs as Git objects: a repository that shows a mesh's jobs, and takes jobs from pushed commits.

It uses the installed `git` and no library. Nothing here is loaded by other commands.
"""
