"""How answers are measured: the only place where gold answers and poison labels exist.

Each metric is a pure function. What has no value, such as the share of wrong answers where nothing was answered, is
None and never NaN; every result says over how many questions it was taken.
"""
