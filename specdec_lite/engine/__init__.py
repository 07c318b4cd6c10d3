"""Models behind one call: `CausalLM` (`models`), our own transformer and Hugging Face's, and the
cache that is cut back.
"""
