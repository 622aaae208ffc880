"""``arbitrag tune``: grid search over a method's thresholds and weights on a recorded run, without calls to a model."""
