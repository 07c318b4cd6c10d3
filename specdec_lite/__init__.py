"""specdec_lite: speculative decoding, small, fast and exact.

from specdec_lite import load_pair, generate
from specdec_lite.drafters import ModelDrafter

pair = load_pair()
out = generate(pair.target, pair.tokenizer.encode("def main():"), ModelDrafter(pair.draft, gamma=4))

`__init__.pyi` lists the public names; each is imported when it is first used.
"""

from specdec_lite import _lazy

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = _lazy.attach(__name__)
