"""specdec_lite: speculative decoding, small, fast and exact.

from specdec_lite import load_pair, generate
from specdec_lite.drafters import ModelDrafter

pair = load_pair()
out = generate(pair.target, pair.tokenizer.encode("def main():"), ModelDrafter(pair.draft, gamma=4))

`__init__.pyi` lists the public names; each is imported when it is first used.
"""

import os

from specdec_lite import _lazy

# An idle thread of torch spins at a barrier and takes the time that its partner needs if another
# program holds a core: decoding is then 10 to 25 times slower (`python -m benchmarks run
# busy-machine`). A bounded spin is as fast on a quiet machine. OpenMP reads its settings when torch
# is imported; a user who has set how threads wait is left alone.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "5000"  # iterations; GNU's OpenMP, in torch's wheels for Linux
    os.environ["KMP_BLOCKTIME"] = "1"  # milliseconds; LLVM's and Intel's, for macOS and Windows

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = _lazy.attach(__name__)
