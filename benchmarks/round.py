"""Record rounds for the book's picture: SmolLM2 in float32 with every p, q, coin and cache length.

The recording contains no times, so any machine will do.
"""

from specdec_book.viz.round import record_rounds
from specdec_book.viz.stepper import Stepper
from specdec_lite import load_smollm2
from specdec_lite.drafters import EagleDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.sampling import Sampling

from .experiment import Run, experiment
from .smollm2 import without_blocks

PROMPT = "Once upon a time, a small robot lived at the bottom of the sea. Every morning"
LEFT_OUT = (12, 18)
SEED, ROUNDS = 10, (0, 1, 2, 3)
STEPPER_SEED, STEPPER_ROUNDS = 1, (5, 6, 7, 8)
"""The run of chapter 5's stepper, whose draft is the shortened target and has a cache of its own."""
GAMMA, TOP_K = 4, 4


def stepper_data(target: CausalLM, draft: CausalLM, tokenizer, tokens: int) -> dict:
    """Return the rounds of the picture in the format of the stepper."""
    sampling = (1.0, TOP_K, STEPPER_SEED)
    run = Stepper.record(target, draft, tokenizer, PROMPT, GAMMA, tokens, *sampling).rounds
    first, last = min(STEPPER_ROUNDS), max(STEPPER_ROUNDS)
    written = [(*each["drafts"][: each["accepted"]], each["token"]) for each in run[:first]]
    before = "".join(word["text"] for words in written for word in words)
    return {"prompt": PROMPT + before, "gamma": GAMMA, "rounds": run[first : last + 1]}


@experiment(
    "rounds",
    "rounds of speculative decoding, word by word",
    time="1 minute",
    quick={"tokens": 40},
    timed=False,
)
@experiment(
    "rounds-start",
    "the start page's rounds of speculative decoding, word by word",
    time="1 minute",
    quick={"tokens": 40},
    timed=False,
    given={"seed": 23, "chosen": (5, 6, 7), "stepper": False},
)
def rounds(
    run: Run, seed: int = SEED, chosen=ROUNDS, stepper: bool = True, *, tokens: int = 60
) -> dict:
    """Return the picture's rounds, and the run of chapter 5's stepper.

    The first round of the start page needs no numbers: each word that it keeps is at least as likely
    under the target as under the draft, and one word is rejected.

    Args:
        run: what runs the parts
        seed: seed of the picture's run
        chosen: numbers of its rounds
        stepper: whether to record the stepper's run too
        tokens: length of both runs
    """
    target, tokenizer = load_smollm2("cpu", "float32")
    drafter = EagleDrafter.from_pretrained(target, draft=GAMMA)
    own, all_ = (sum(w.numel() for w in m.parameters()) for m in (drafter.head, target.model))
    ids = tokenizer.encode(PROMPT)

    def picture() -> list[dict]:
        every = record_rounds(target, drafter, tokenizer, ids, tokens, Sampling(1.0, TOP_K), seed)
        return [every[number] for number in chosen]

    def stepped() -> dict:
        # The stepper shows the caches of two models, so its draft is the shortened target.
        return stepper_data(target, without_blocks(target, LEFT_OUT), tokenizer, tokens)

    about = (
        f"Recorded from SmolLM2-135M, temperature 1, top-k {TOP_K}; the draft is a trained EAGLE-1"
        f" head with {own / 1e6:.1f} million weights; the target has {all_ / 1e6:.0f} million."
    )
    return {
        "about": about,
        "prompt": PROMPT,
        "seed": seed,
        **run({"rounds": picture} | ({"run": stepped} if stepper else {})),
    }
