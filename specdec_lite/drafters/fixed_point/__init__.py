"""Drafts from fixed-point iterations of the target: Jacobi and Lookahead."""
