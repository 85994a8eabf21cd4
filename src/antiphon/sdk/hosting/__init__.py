"""Meshes that this program hosts: one for development, one for several machines."""
