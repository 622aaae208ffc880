"""``arbitrag bench``: run methods on question sets, and report the results."""
