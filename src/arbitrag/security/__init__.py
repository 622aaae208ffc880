"""Untrusted addresses and secrets: what may be opened, what may be shown, what libraries may send."""
