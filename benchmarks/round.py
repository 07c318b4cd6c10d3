"""Record rounds for the book's picture: SmolLM2 in float32 with every p, q, coin and cache length.

`python -m benchmarks run rounds --list 8` prints the rounds of eight seeds, so that a person can
choose which to show. The recording contains no times, so any machine will do.
"""

from functools import cached_property

from specdec_book.viz.round import record_rounds
from specdec_book.viz.stepper import Stepper
from specdec_lite import drafters
from specdec_lite.engine.models import CausalLM
from specdec_lite.sampling import Sampling
from specdec_lite.speculation import Drafter

from .smollm2 import OnSmolLM2, without_blocks

PROMPT = "Once upon a time, a small robot lived at the bottom of the sea. Every morning"
LEFT_OUT = (12, 18)
SEED, ROUNDS = 10, (0, 1, 2, 3)
STEPPER_SEED, STEPPER_ROUNDS = 1, (5, 6, 7, 8)
"""The run of chapter 5's stepper, whose draft is the shortened target and has a cache of its own."""


def drafter_of(target: CausalLM, args) -> tuple[Drafter, str]:
    """Return the requested drafter and its description."""
    kind = getattr(drafters, args.drafter)
    drafter = kind.from_pretrained(
        target, **({name: int(value) for name, value in args.options} or {"draft": args.gamma})
    )
    own, all_ = (sum(part.numel() for part in m.parameters()) for m in (drafter.head, target.model))
    words = f"{args.words} with {own / 1e6:.1f} million weights; the target has {all_ / 1e6:.0f} million"
    return drafter, words


def round_summaries(rounds: list[dict]) -> list[dict]:
    """Return drafted words, number of accepted drafts and the added word of each round."""
    summaries = []
    for each in rounds:
        drafts = [row["words"][row["tests"][0]["word"]] for row in each["rows"] if row["tests"]]
        token = each["rows"][each["accepted"]]["words"][each["token"]["word"]]
        summaries.append({"drafts": drafts, "accepted": each["accepted"], "token": token})
    return summaries


def stepper_data(target: CausalLM, draft: CausalLM, tokenizer, args) -> dict:
    """Return the rounds of the picture in the format of the stepper."""
    sampling = (args.temperature, args.top_k, STEPPER_SEED)
    run = Stepper.record(
        target, draft, tokenizer, args.prompt, args.gamma, args.tokens, *sampling
    ).rounds
    first, last = min(STEPPER_ROUNDS), max(STEPPER_ROUNDS)
    written = [(*each["drafts"][: each["accepted"]], each["token"]) for each in run[:first]]
    before = "".join(word["text"] for words in written for word in words)
    return {"prompt": args.prompt + before, "gamma": args.gamma, "rounds": run[first : last + 1]}


class Rounds(OnSmolLM2):
    """The parts are the picture's rounds, and the run of chapter 5's stepper."""

    name = "rounds"
    what = "rounds of speculative decoding, word by word"
    time = "1 minute"
    quick = "--tokens 40".split()
    unrelated = ("list",)

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--prompt", default=PROMPT)
        parser.add_argument("--seed", type=int, default=SEED)
        parser.add_argument(
            "--list", type=int, metavar="COUNT", help="only print the rounds of seeds, from --seed"
        )
        parser.add_argument("--gamma", type=int, default=4)
        parser.add_argument("--tokens", type=int, default=60)
        parser.add_argument("--top-k", type=int, default=4)
        parser.add_argument("--temperature", type=float, default=1.0)
        parser.add_argument(
            "--rounds", type=int, nargs="+", default=ROUNDS, help="which of the run"
        )
        parser.add_argument("--left-out", type=int, nargs="+", default=LEFT_OUT)
        parser.add_argument(
            "--drafter",
            default="EagleDrafter",
            help="a class of specdec_lite.drafters with from_pretrained",
        )
        parser.add_argument(
            "--option", dest="options", nargs=2, action="append", default=[], metavar="X"
        )
        parser.add_argument("--words", default="a trained EAGLE-1 head", help="what it is")

    @cached_property
    def drafter(self) -> tuple[Drafter, str]:
        """The drafter and its description."""
        return drafter_of(self.model[0], self.options)

    def rounds_of(self, seed: int) -> list[dict]:
        """Return all rounds of the run with a seed."""
        args = self.options
        target, tokenizer = self.model
        sampling = Sampling(args.temperature, args.top_k)
        ids = tokenizer.encode(args.prompt)
        return record_rounds(target, self.drafter[0], tokenizer, ids, args.tokens, sampling, seed)

    def check(self):
        for seed in range(self.options.seed, self.options.seed + (self.options.list or 0)):
            for number, each in enumerate(round_summaries(self.rounds_of(seed))):
                print("seed", seed, "round", number, *each.values(), flush=True)
        if self.options.list:
            raise SystemExit(0)

    def parts(self):
        return ["rounds", "run"]

    def run(self, part):
        args = self.options
        target, tokenizer = self.model
        if part == "rounds":
            run = self.rounds_of(args.seed)
            return [run[number] for number in args.rounds]
        # the stepper shows the caches of two models, so its draft is the shortened target
        return stepper_data(target, without_blocks(target, args.left_out), tokenizer, args)

    def summarise(self, rows):
        args = self.options
        about = (
            f"Recorded from SmolLM2-135M, temperature {args.temperature:g}, top-k {args.top_k};"
            f" the draft is {self.drafter[1]}."
        )
        return {"about": about, "prompt": args.prompt, "seed": args.seed, **rows}
