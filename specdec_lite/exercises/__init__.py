"""Checks for the book's exercises: how an answer is tried (`check`), then one file for each
chapter's topic.
"""
