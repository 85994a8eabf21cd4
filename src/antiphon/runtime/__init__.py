"""The asyncio shell: carries out what the core decides, and decides nothing itself."""
