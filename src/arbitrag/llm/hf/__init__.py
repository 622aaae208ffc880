"""The ``hf:`` backend: causal language models of transformers, on torch."""
