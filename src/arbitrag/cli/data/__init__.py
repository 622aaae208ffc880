"""``arbitrag data``: check question sets, and build them."""
