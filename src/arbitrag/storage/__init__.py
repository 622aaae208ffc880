"""Files on the user's disk: written whole or not at all, locked, and with checksums."""
