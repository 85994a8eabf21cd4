"""What a Git bridge needs of a mesh: the lives of jobs as data, SSH keys, and who may push."""
