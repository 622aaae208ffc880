"""How the structured replies of a model are read: one grammar (``grammar``), values (``values``), forms (``forms``)."""
