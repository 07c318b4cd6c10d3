"""specdec_lite: speculative decoding, small, fast and exact.

    from specdec_lite import load_pair, generate
    from specdec_lite.drafters import ModelDrafter

    pair = load_pair()
    out = generate(pair.target, pair.tokenizer.encode("def main():"), ModelDrafter(pair.draft, gamma=4))
"""
from . import acceptance, results, sampling, theory, timing
from .decoding import Output, Stats, generate, stream
from .models import CausalLM
from .pairs import Pair, load_pair
from .proposal import Proposal
from .tree import TokenTree

__version__ = "0.1.0"
__all__ = ["CausalLM", "Output", "Pair", "Proposal", "Stats", "TokenTree", "acceptance", "generate", "load_pair", "results", "sampling",
           "stream", "theory", "timing"]
