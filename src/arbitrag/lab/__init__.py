"""The embedded model and its invented world."""
