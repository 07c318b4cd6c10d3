"""Provide the plain decoders of a machine, which a reader would use instead of any draft.

They use the same weights in another format, without the packed copy, and in transformers'
`generate`. `scoreboard_clocks` compares them with the library's own plain decoding in float32.
"""

from collections.abc import Callable, Sequence
from functools import cache

from specdec_lite import CausalLM, load_pair, load_smollm2
from specdec_lite.engine.linear import unpack
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.loading.smollm2 import smollm2_folder

from .hugging_face import HuggingFace
from .smollm2 import STOP
from .speed import Contender, ours, theirs


def target(model: str, dtype: str) -> CausalLM:
    """Return a separate copy of a target."""
    if model == "pair":
        return load_pair(device="cpu", dtype=dtype).target
    return load_smollm2("cpu", dtype)[0]


@cache
def bfloat16(model: str) -> CausalLM:
    """Return a target in bfloat16."""
    return target(model, "bfloat16")


@cache
def int4() -> CausalLM:
    """Return SmolLM2 in the 4-bit format of its file; the pair has no such weights."""
    return target("smollm2", "int4")


@cache
def unpacked(model: str) -> CausalLM:
    """Return a target in float32 without packed weights."""
    model_copy = target(model, "float32")
    unpack(model_copy.model)
    return model_copy


@cache
def transformers(model: str) -> Callable[..., list[tuple[float, int]]]:
    """Return transformers' decoding of a target."""
    if model == "pair":
        return HuggingFace(SHIPPED / "target", "float32")
    return HuggingFace(smollm2_folder(), "float32", stop=STOP)


def others(
    model: str,
    new_tokens: int,
    temperature: float,
    stops: tuple[int, ...],
    timed: Sequence[str] = (),
) -> dict[str, Contender]:
    """Return the plain decoders by name, without the formats that are timed elsewhere.

    Each format rounds differently, so texts may differ.
    """
    loops = {"bfloat16": lambda: bfloat16(model), "unpacked": lambda: unpacked(model)}
    if model == "smollm2":
        loops["int4"] = int4
    decoders = {
        name: Contender(ours(load(), None, None, new_tokens, temperature, stops))
        for name, load in loops.items()
        if name not in timed
    }
    theirs_alone = theirs(transformers(model), new_tokens, temperature, assisted=False)
    return decoders | {"transformers": Contender(theirs_alone)}
