"""How the lab model is made; not part of the wheel. Everything here needs the extra ``hf``."""
