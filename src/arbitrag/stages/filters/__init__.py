"""Filters of poisoned passages: TrustRAG's first stage, by two rules."""
