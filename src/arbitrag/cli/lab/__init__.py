"""``arbitrag lab``: the invented world, its documents and its questions."""
