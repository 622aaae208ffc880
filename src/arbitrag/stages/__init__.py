"""The stages that methods share: gate, filter, rerank, refusal, grouping, structured replies."""
