"""From files to models: pairs, the hub, memory that suffices, weights of drafters, text that every
machine has.
"""
