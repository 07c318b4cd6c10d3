"""specdec_lite: speculative decoding, small, fast and exact.

from specdec_lite import load_pair, generate
from specdec_lite.drafters import ModelDrafter

pair = load_pair()
out = generate(pair.target, pair.tokenizer.encode("def main():"), ModelDrafter(pair.draft, gamma=4))
"""

from specdec_lite import acceptance, roofline, sampling, theory
from specdec_lite.decoding import Output, Stats, generate, stream
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading import corpus, hub, memory
from specdec_lite.loading.pairs import Pair, load_pair
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.measure import profiler as timeline, results, timing
from specdec_lite.proposal import Proposal
from specdec_lite.serving.batch import generate_batch
from specdec_lite.serving.diagnose import Diagnosis, diagnose
from specdec_lite.tree import TokenTree

__version__ = "0.1.0"
__all__ = [
    "CausalLM",
    "Diagnosis",
    "Output",
    "Pair",
    "Proposal",
    "Stats",
    "TokenTree",
    "acceptance",
    "corpus",
    "diagnose",
    "generate",
    "generate_batch",
    "hub",
    "load_pair",
    "load_smollm2",
    "memory",
    "results",
    "roofline",
    "sampling",
    "stream",
    "theory",
    "timeline",
    "timing",
]
