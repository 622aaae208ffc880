"""Making models and their files; everything here needs the extra ``hf``."""
