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


def target(model: str, form: str) -> CausalLM:
    """Return a separate copy of a target in a dtype; "unpacked" is float32 without packed weights."""
    dtype = "float32" if form == "unpacked" else form
    copy = (
        load_pair(device="cpu", dtype=dtype).target
        if model == "pair"
        else load_smollm2("cpu", dtype)[0]
    )
    if form == "unpacked":
        unpack(copy.model)
    return copy


one_target = cache(target)
"""The same for all turns."""


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
    # The pair has no weights in the 4-bit format of SmolLM2's file.
    forms = ("bfloat16", "unpacked", *(("int4",) if model == "smollm2" else ()))
    decoders = {
        form: Contender(ours(one_target(model, form), None, None, new_tokens, temperature, stops))
        for form in forms
        if form not in timed
    }
    theirs_alone = theirs(transformers(model), new_tokens, temperature, assisted=False)
    return decoders | {"transformers": Contender(theirs_alone)}
