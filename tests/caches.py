"""Looking at the caches of a generation: those that a model hands out, and what they hold."""

from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.hugging_face import HuggingFaceStorage


class Watched(ModelDrafter):
    """A ModelDrafter whose last session can be looked at."""

    def start(self, context):
        self.session = super().start(context)
        return self.session


def watched_caches(model, monkeypatch):
    """The list of caches that `model` hands out from now on."""
    made, new_cache = [], model.new_cache
    monkeypatch.setattr(
        model, "new_cache", lambda *a, **k: made.append(new_cache(*a, **k)) or made[-1]
    )
    return made


def contents(cache):
    """Keys and values [layers, …, length, h] of the tokens a cache holds."""
    if isinstance(cache.storage, HuggingFaceStorage):
        return [t[..., : cache.length, :] for pair in cache.storage.snapshot() for t in pair]
    return [
        t[..., : cache.length, :]
        for t in (cache.storage.tensors.keys, cache.storage.tensors.values)
    ]
