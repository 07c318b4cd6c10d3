"""Load a target and its draft: the shipped pair, or two models from the hub or local folders.

Everything that can be checked from config.json and the tokenizers is checked before any weight is
downloaded or loaded.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_lite.checks import is_whole
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.checkpoints import (
    DESCRIPTION,
    fetch_folder,
    load_model,
    load_tokenizer,
    model_dtype,
    model_size,
    save_model,
    weight_patterns,
)
from specdec_lite.loading.memory import Size, advise, check_room, resolve_device

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHIPPED = Path(__file__).parents[1] / "weights" / "pair"
CONTEXT = 4096
"""Tokens of prompt and answer to reserve memory for by default."""
PROBES = (
    "def f(x):\n    return x",
    "It was 25 °C in Zürich – 東京 🙂",
    "   spaces\tand\r\nlines ",
    "0123456789",
    "<|endoftext|>",
)
"""Texts that two tokenizers must split into the same tokens."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, its draft and the tokenizer that both use.

    Attributes:
        target: the model whose distribution is kept.
        draft: the smaller model that proposes tokens.
        tokenizer: a Hugging Face tokenizer.
    """

    target: CausalLM
    draft: CausalLM
    tokenizer: "PreTrainedTokenizerBase"

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Return the ids that end a text of the target, as its files state them."""
        return self.target.end_of_text


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    context: int | None = None,
    device_map: str | dict | None = None,
    tp_plan: str | None = None,
) -> Pair:
    """Load a target and a draft: the shipped trained pair, or two hub ids or local folders.

    A target larger than one GPU needs `device_map` or `tp_plan`, which transformers applies. The
    draft then goes to the device of the target's input. Vocabularies, context lengths and memory
    are checked before any weight is downloaded or loaded; memory for quantized weights without an
    index is checked after their download.

    Args:
        target: hub id or folder; None for the shipped pair.
        draft: hub id or folder; None for the shipped pair.
        device: "auto" (a GPU if there is one), or anything `torch.device` takes.
        dtype: "float32", "bfloat16", "float16", "float64" or "auto". "auto" means each model's
            stored dtype where that decodes fastest with a draft. Otherwise bfloat16 is replaced: on
            a CPU without instructions for it by float32, for models whose sizes `int4.can_share`
            refuses; on a GPU without it by float16.
        context: tokens of prompt and answer to reserve memory for; None: 4096, or the longest text
            that both models can read if that is shorter.
        device_map: "auto" spreads the target's layers over several GPUs (needs accelerate).
        tp_plan: "auto" splits every layer of the target over the processes of `torchrun`; give all
            processes the same seed.

    Raises:
        ValueError: the models cannot work together, or a folder does not contain a model.
        TypeError: target or draft is neither a string nor a path.
        MemoryError: the models do not fit.
    """
    sources = _sources(target, draft)
    device = str(resolve_device(device))
    placement = {"device_map": device_map, "tp_plan": tp_plan} if device_map or tp_plan else {}

    folders, tokenizer = _described(sources)
    on_device = ["draft"] if placement else ["target", "draft"]
    sizes = _check_fit(folders, device, dtype, context, on_device)
    folders = {
        name: fetch_folder(name, source, [*DESCRIPTION, *weight_patterns(folders[name])])
        for name, source in sources.items()
    }
    if any(size.quantized_bytes == 0 for size in sizes.values()):
        _check_fit(folders, device, dtype, context, on_device)
    with advise("loading the target"):
        large = load_model(folders["target"], device, dtype, **placement)
    if placement:
        device = str(large.device)
    with advise("loading the draft"):
        small = load_model(folders["draft"], device, dtype)
    return Pair(large, small, tokenizer)


def needed_memory(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    context: int | None = None,
) -> dict[str, int]:
    """Return the bytes that each model of a pair needs; download no weights.

    Args:
        target: hub id or folder; None for the shipped pair.
        draft: hub id or folder; None for the shipped pair.
        device: as for `load_pair`.
        dtype: as for `load_pair`.
        context: as for `load_pair`.

    Returns:
        Bytes of weights and cache of "target" and "draft", without working memory.

    Raises:
        ValueError: the models cannot work together, or a folder does not contain a model.
        TypeError: target or draft is neither a string nor a path.
    """
    sources = _sources(target, draft)
    folders, _ = _described(sources)
    device = str(resolve_device(device))
    return _needs(folders, device, dtype, context)[1]


def _sources(target: str | Path | None, draft: str | Path | None) -> dict[str, str | Path]:
    """Return where target and draft are, with the shipped pair for None."""
    if (target is None) != (draft is None):
        raise ValueError(
            f"target={target!r}, draft={draft!r}: give both, or neither for the shipped pair"
        )
    if target is None or draft is None:
        return {"target": SHIPPED / "target", "draft": SHIPPED / "draft"}
    return {"target": target, "draft": draft}


def _described(sources: dict[str, str | Path]) -> tuple[dict[str, Path], "PreTrainedTokenizerBase"]:
    """Return the folders with both descriptions, and the tokenizer that the models share."""
    folders = {name: fetch_folder(name, source, DESCRIPTION) for name, source in sources.items()}
    tokenizers = {name: load_tokenizer(folder) for name, folder in folders.items()}
    _check_tokenizers(tokenizers["target"], tokenizers["draft"])
    return folders, tokenizers["target"]


def _check_tokenizers(target: "PreTrainedTokenizerBase", draft: "PreTrainedTokenizerBase") -> None:
    """Raise ValueError if the vocabularies differ or a text is split into different tokens.

    Equal vocabularies are not enough: two tokenizers may contain the same tokens and split text
    differently.
    """
    ours, theirs = target.get_vocab(), draft.get_vocab()
    if ours != theirs:
        first = min(set(ours.items()) ^ set(theirs.items()), key=lambda item: item[::-1])
        raise ValueError(
            f"target and draft have different vocabularies ({len(ours)} and {len(theirs)} entries;"
            f" the first that differs is {first}): speculative decoding compares token ids,"
            " so both must use one tokenizer"
        )
    for text in PROBES:
        if target.encode(text) != draft.encode(text):
            raise ValueError(
                f"target and draft split the text {text!r} into different tokens although their"
                " vocabularies agree"
            )


def _check_fit(
    folders: dict[str, Path], device: str, dtype: str, context: int | None, on_device: list[str]
) -> dict[str, Size]:
    """Check the context length against both models and their memory against the device's."""
    sizes, needs, room = _needs(folders, device, dtype, context)
    check_room({name: needs[name] for name in on_device}, device, room)
    return sizes


def _needs(
    folders: dict[str, Path], device: str, dtype: str, context: int | None
) -> tuple[dict[str, Size], dict[str, int], int]:
    """Return each model's size, its bytes, and the tokens of the caches among them."""
    sizes = {name: model_size(folder) for name, folder in folders.items()}
    limit = min(size.positions for size in sizes.values())
    if context is not None and not (is_whole(context) and 1 <= context <= limit):
        limits = ", ".join(f"{name} {size.positions}" for name, size in sizes.items())
        raise ValueError(
            f"context={context!r}: must be a whole number from 1 to what both models can read"
            f" ({limits} tokens)"
        )
    room = context or min(CONTEXT, limit)
    needs = {
        name: sizes[name].bytes(model_dtype(folder, dtype, device), room)
        for name, folder in folders.items()
    }
    return sizes, needs, room


def save_pair(
    folder: Path,
    target: Transformer,
    draft: Transformer,
    tokenizer: "PreTrainedTokenizerBase",
    report: dict,
) -> None:
    """Write both models in the layout of the shipped pair."""
    save_model(folder / "target", target, tokenizer)
    save_model(folder / "draft", draft, tokenizer)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
