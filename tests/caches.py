"""The caches of a generation: those that a model creates, and their contents."""

from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.hugging_face import HuggingFaceStorage


class Watched(ModelDrafter):
    """A ModelDrafter that stores its last session."""

    def start(self, context):
        self.session = super().start(context)
        return self.session


def watched_caches(model, monkeypatch):
    """Return a list that receives every cache that `model` creates from now on."""
    caches, new_cache = [], model.new_cache
    monkeypatch.setattr(
        model, "new_cache", lambda *a, **k: caches.append(new_cache(*a, **k)) or caches[-1]
    )
    return caches


def contents(cache):
    """Return keys and values [layers, …, length, h] of the tokens in a cache."""
    if isinstance(cache.storage, HuggingFaceStorage):
        return [t[..., : cache.length, :] for pair in cache.storage.snapshot() for t in pair]
    return [
        t[..., : cache.length, :]
        for t in (cache.storage.tensors.keys, cache.storage.tensors.values)
    ]
