"""The public names and where each is defined. `specdec_lite.__init__` loads them on first use."""

from specdec_lite import (
    acceptance,
    grammar,
    measure as timing,
    processors,
    roofline,
    sampling,
    theory,
)
from specdec_lite.batch import generate_batch
from specdec_lite.decoding import Output, Stats, generate, stream
from specdec_lite.diagnosis.diagnose import diagnose
from specdec_lite.diagnosis.lossless import check_lossless
from specdec_lite.diagnosis.verdict import Diagnosis
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading import hub, memory
from specdec_lite.loading.pairs import Pair, load_pair
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.measure import profiler as timeline
from specdec_lite.proposal import Proposal
from specdec_lite.texts import corpus
from specdec_lite.texts.streaming import stream_text
from specdec_lite.tree import TokenTree

__version__: str
__all__ = [
    "CausalLM",
    "Diagnosis",
    "Output",
    "Pair",
    "Proposal",
    "Stats",
    "TokenTree",
    "acceptance",
    "check_lossless",
    "corpus",
    "diagnose",
    "generate",
    "generate_batch",
    "grammar",
    "hub",
    "load_pair",
    "load_smollm2",
    "memory",
    "processors",
    "roofline",
    "sampling",
    "stream",
    "stream_text",
    "theory",
    "timeline",
    "timing",
]
