"""Untrusted addresses and secrets: which addresses may be opened, what of them may be shown, what libraries may send."""
