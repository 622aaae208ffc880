"""Fault injection: what ``faults.py`` runs in full and ``tests/hostile`` in part."""
