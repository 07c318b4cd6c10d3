"""specdec_lite: speculative decoding, complete, fast and exact.

from specdec_lite import load_pair, generate
from specdec_lite.drafters import ModelDrafter

pair = load_pair()
out = generate(pair.target, pair.tokenizer.encode("def main():"), ModelDrafter(pair.draft, gamma=4))

`__init__.pyi` lists the public names; each is imported when it is first used.
"""

import os
import warnings

from specdec_lite import _lazy

# Linux lists what a processor can do; other systems and processors have no such line.
try:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as _lines:
        _flags = next((line for line in _lines if line.startswith("flags")), "avx2")
except OSError:
    _flags = "avx2"
if "avx2" not in _flags.split():
    warnings.warn(
        "this processor has no AVX2, which PyTorch's own builds need: `import torch` will probably"
        " stop with 'Illegal instruction'; use another machine, or build PyTorch for this one",
        stacklevel=2,
    )

# An idle thread of torch spins at a barrier and takes the time that its partner needs if another
# program holds a core: decoding is then 10 to 25 times slower (`python -m benchmarks run
# busy-machine`). A bounded spin is as fast on a quiet machine. OpenMP reads its settings when torch
# is imported; a user who has set how threads wait is left alone.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "5000"  # iterations; GNU's OpenMP, in torch's wheels for Linux
    os.environ["KMP_BLOCKTIME"] = "1"  # milliseconds; LLVM's and Intel's, for macOS and Windows

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = _lazy.attach(__name__)
