"""The command line and HTTP, for people and other programs; thin, they use the SDK."""
