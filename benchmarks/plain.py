"""The plain decoders of a machine: what a reader would use in place of any draft, beside the loop's
own plain decoding in float32.

What lives here: the same weights in another precision, without the packed copy, and in
transformers' `generate`. What does not: whether they are quicker (`scoreboard`).
"""

from collections.abc import Callable
from functools import cache

from specdec_lite import CausalLM, load_pair, load_smollm2
from specdec_lite.engine.linear import unpack
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.loading.smollm2 import smollm2_folder

from .hugging_face import HuggingFace, HuggingFaceLookup
from .smollm2 import STOP
from .speed import Contender, ours, theirs


def target(model: str, dtype: str) -> CausalLM:
    """A copy of its own of the target "pair" or "smollm2"."""
    if model == "pair":
        return load_pair(device="cpu", dtype=dtype).target
    return load_smollm2("cpu", dtype)[0]


@cache
def bfloat16(model: str) -> CausalLM:
    return target(model, "bfloat16")


@cache
def unpacked(model: str) -> CausalLM:
    found = target(model, "float32")
    unpack(found.model)
    return found


@cache
def transformers(model: str) -> Callable[..., list[tuple[float, int]]]:
    if model == "pair":
        return HuggingFace(SHIPPED, "float32", 1)
    return HuggingFaceLookup(smollm2_folder(), "float32", 1, STOP)


def others(
    model: str, new_tokens: int, temperature: float, stops: tuple[int, ...]
) -> dict[str, Contender]:
    """{name: plain decoder}; bfloat16 rounds otherwise, so its texts may differ."""
    loops = {"bfloat16": bfloat16(model), "unpacked": unpacked(model)}
    made = {
        name: Contender(ours(each, None, None, new_tokens, temperature, stops))
        for name, each in loops.items()
    }
    theirs_alone = theirs(transformers(model), new_tokens, temperature, assisted=False)
    return made | {"transformers": Contender(theirs_alone)}
