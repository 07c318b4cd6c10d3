"""Drafters made from other drafters."""
