"""Build a TRD: questions for which the right source to trust is known (BRIDGE, section 2)."""
