"""Token trees drafted by a model, and how their shapes are chosen."""
