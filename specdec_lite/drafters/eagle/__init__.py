"""Drafts by one block over the target's hidden states: EAGLE and MTP."""
