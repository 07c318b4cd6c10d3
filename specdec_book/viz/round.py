"""One round as a picture: drafts, one target pass, the tests with their uniforms, both caches.

`static/round.js` derives the moments of a round from the recorded numbers; `benchmarks/round.py`
records the rounds that the book shows.
"""

from collections.abc import Sequence

import traitlets
from torch import Tensor

from specdec_book import recordings
from specdec_book.viz.chance import RecordingRng
from specdec_book.viz.interactive import Interactive
from specdec_book.viz.trace import shorten_prompt
from specdec_lite import checks
from specdec_lite.contract import Context, Drafter, Session
from specdec_lite.decoding import default_rule, stream
from specdec_lite.engine.cache import Cache, Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Sampling
from specdec_lite.speculation import Verifier, verify

WORDS = 10
"""Largest number of words that the picture can show at one position."""


class Round(Interactive):
    """Recorded rounds, played or stepped: drafts, one target pass, tests, the added token, caches.

    It pauses and asks the reader for decisions; greedy rounds draw no uniforms.

    Attributes:
        rounds: One dict per round, as `record_rounds` returns them.
        about: One line that names the models.
        caches: Whether to show both caches.
        numbers: Whether the sentences state p, q and u.
        autoplay: Whether to start playing once the picture is in view.
        moment: Number of the moment on display, from 0, over all rounds.
    """

    module = "round"
    label = "One round of speculative decoding: drafts, one target pass, tests, accepted tokens"

    rounds = traitlets.List(traitlets.Dict())
    about = traitlets.Unicode()
    caches = traitlets.Bool(True)
    numbers = traitlets.Bool(True)
    autoplay = traitlets.Bool(False)
    moment = traitlets.Int(0, min=0)

    @classmethod
    def load(cls, name: str = "rounds", **options) -> "Round":
        """Return the rounds of the recording `name`."""
        data = recordings.load(name).data
        return cls(rounds=data["rounds"], about=data["about"], **options)

    @classmethod
    def record(
        cls,
        target: CausalLM,
        drafter: Drafter,
        tokenizer,
        prompt: str,
        max_new_tokens: int = 16,
        temperature: float = 1.0,
        top_k: int = 4,
        seed: int = 0,
        **options,
    ) -> "Round":
        """Decode after `prompt` with a drafter of chains and record every round."""
        sampling = Sampling(temperature, checks.whole("top_k", top_k, 1, WORDS // 2))
        ids = tokenizer.encode(prompt)
        rounds = record_rounds(target, drafter, tokenizer, ids, max_new_tokens, sampling, seed)
        return cls(rounds=rounds, **options)


def record_rounds(
    target: CausalLM,
    drafter: Drafter,
    tokenizer,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    sampling: Sampling,
    seed: int = 0,
) -> list[dict]:
    """Decode with a drafter of chains and return its rounds as JSON types.

    The rows of both models are recorded over the few words that have a probability.
    """
    recorder = RecordingDrafter(drafter, tokenizer, sampling)
    steps = stream(
        target,
        prompt_ids,
        recorder,
        max_new_tokens,
        sampling.temperature,
        sampling.top_k,
        rule=recorder.verifier,
        rng=RecordingRng(seed),
    )
    for _ in steps:
        recorder.close()
    lengths = [each["caches"]["draft"] for each in recorder.rounds]
    if all(
        length and length[1] < each["context"] for length, each in zip(lengths, recorder.rounds)
    ):
        for each in recorder.rounds:  # a cache that never holds a draft has nothing to cut back
            each["caches"]["draft"] = None
    return recorder.rounds


class RecordingDrafter(Drafter):
    """A drafter that records every round it takes part in.

    Its `verifier` must be the rule of the same generation; call `close` after every step.

    Args:
        drafter: The drafter that proposes.
        tokenizer: Anything with `decode(ids)`.
        sampling: Settings of the generation.
    """

    def __init__(self, drafter: Drafter, tokenizer, sampling: Sampling):
        self.drafter = drafter
        self.tokenizer = tokenizer
        self.sampling = Sampling(1.0, sampling.top_k) if sampling.greedy else sampling
        self.hidden_layers = drafter.hidden_layers
        self.verifier = RecordingVerifier(self, default_rule(sampling))
        self.rounds: list[dict] = []

    def start(self, context: Context) -> Session:
        self.cache = context.cache
        self.session = self.drafter.start(context)
        self.lengths = self.cache_lengths()
        return self.session

    def check(self, target: CausalLM, positions: int) -> None:
        self.drafter.check(target, positions)

    def cache_lengths(self) -> dict[str, int | None]:
        """Return the length of both caches; None for a session without a cache of its own."""
        cache = getattr(self.session, "cache", None)
        assert self.cache is not None
        draft = cache.length if isinstance(cache, Cache) and cache is not self.cache else None
        return {"target": self.cache.length, "draft": draft}

    def close(self) -> None:
        """Record the lengths of the caches after the round; the next round starts from them."""
        self.lengths = self.cache_lengths()
        caches = self.rounds[-1]["caches"]
        for name, length in self.lengths.items():
            caches[name] = None if length is None else [*caches[name], length]


class RecordingVerifier(Verifier):
    """A rule that records what decided each of its verdicts.

    Args:
        recorder: The drafter that keeps the rounds.
        rule: The rule that decides.
    """

    def __init__(self, recorder: RecordingDrafter, rule):
        self.recorder, self.rule = recorder, rule
        self.name = rule.name
        self.lossless = rule.lossless

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        if not proposal.tree.is_chain:
            raise ValueError("drafter proposed a tree: must propose chains")
        uniforms = context.rng.uniforms  # pyright: ignore[reportAttributeAccessIssue]
        count = len(uniforms)
        verdict = verify(self.rule, proposal, scores, context)
        recorder = self.recorder
        rows = recorder.sampling(scores.logits[0])
        text = context.tokens.tolist()
        lengths = recorder.cache_lengths()
        before = recorder.lengths
        record = {
            "before": shorten_prompt(recorder.tokenizer.decode(text), 150),
            "context": len(text),
            **_decisions(rows, proposal, verdict, uniforms[count:], recorder.tokenizer),
            "caches": {name: [before[name], lengths[name]] for name in lengths},
        }
        recorder.rounds.append(record)
        return verdict


def _decisions(
    rows: Tensor, proposal: Proposal, verdict: Verdict, uniforms: list[float], tokenizer
) -> dict:
    """Return what decided a round: its rows, the number of accepted drafts and the added token."""
    drafts = proposal.tree.tokens.tolist()
    accepted, tested = len(verdict.path), sum(verdict.tests)
    records = []
    word = 0
    for i, p in enumerate(rows):
        draft = drafts[i] if i < len(drafts) else None
        is_chosen = draft is None or proposal.probs is None or not uniforms
        q = None if is_chosen else proposal.probs[i]  # pyright: ignore[reportOptionalSubscript]
        added = [verdict.token] if i == accepted else []
        ids, record = _row(p, q, draft, added, tokenizer)
        if i == accepted:
            word = ids.index(verdict.token)
        for test in record["tests"]:
            test["u"] = round(uniforms[i], 5) if i < min(tested, len(uniforms)) else None
            test["kept"] = i < accepted if i < tested else None
        records.append(record)
    last = round(uniforms[-1], 5) if uniforms else None
    token = {"word": word, "kind": verdict.kind, "u": last}
    return {"rows": records, "accepted": accepted, "token": token}


def _row(p, q, draft: int | None, more: Sequence[int], tokenizer) -> tuple[list[int], dict]:
    """Return the token ids of one position, ascending, and its record."""
    masses = p if q is None else p + q
    tokens = [*more] if draft is None else [*more, draft]
    ids = sorted({*masses.nonzero()[:, 0].tolist(), *tokens})
    if len(ids) > WORDS:
        raise ValueError(f"a row has {len(ids)} words: must be at most {WORDS}; set top_k")
    select = lambda row: [round(float(row[token]), 5) for token in ids]
    tests = []
    if draft is not None:
        tests = [{"word": ids.index(draft), "q": None if q is None else select(q)}]
    words = [tokenizer.decode([token]) for token in ids]
    return ids, {"words": words, "p": select(p), "tests": tests}
