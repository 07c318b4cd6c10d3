"""One round as a picture: guesses, one pass, two bars a word, a coin, and both caches.

What lives here: recording rounds as plain numbers, and the widget that carries them. What does not:
any drawing, and the moments of a round, which follow from the numbers (`static/round.js`); which
rounds the book shows (`benchmarks/round.py`).
"""

from collections.abc import Sequence

import traitlets

from specdec_lite import checks
from specdec_lite.decoding import default_rule, stream
from specdec_lite.engine.cache import Cache, Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.measure import results
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import RecordingRng, Sampling
from specdec_lite.speculation import Context, Drafter, PlainVerifier, Session
from specdec_lite.viz.interactive import Interactive
from specdec_lite.viz.trace import shown_end

WORDS = 10
"""The most words that one place of the picture can show."""


class Round(Interactive):
    """Recorded rounds, played or stepped: the draft's guesses, the target's one pass, a test at
    every guess, the token that the target adds, and what both caches hold.

    rounds: one dict a round, as `recorded_rounds` makes them. about: one line that says which
    models these are. dice: False shows a greedy round, which has no coins. caches: show them. asks:
    stop where the reader can decide. numbers: write p, q and u into the sentences. plays: begin by
    itself once it is in view. moment: which moment of all rounds is shown, from 0.
    """

    module = "round"
    label = "One round of speculative decoding: guesses, one pass, coins, and what is kept"

    rounds = traitlets.List(traitlets.Dict()).tag(sync=True)
    about = traitlets.Unicode().tag(sync=True)
    dice = traitlets.Bool(True).tag(sync=True)
    caches = traitlets.Bool(True).tag(sync=True)
    asks = traitlets.Bool(True).tag(sync=True)
    numbers = traitlets.Bool(True).tag(sync=True)
    plays = traitlets.Bool(False).tag(sync=True)
    moment = traitlets.Int(0, min=0).tag(sync=True)

    @classmethod
    def recorded(cls, name: str = "round", **options) -> "Round":
        """The rounds of the recording results/<name>.json; ValueError where there is none. options:
        the widget's other traits.
        """
        data = results.load(name).data
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
        """Decode after `prompt` with chains as drafts, and keep what decided every round.

        Args:
            tokenizer: anything with `encode(text)` and `decode(ids)`.
            top_k: words with a chance in a row of either model, 1 … 5; at temperature 0 how many
                are shown.
            options: the widget's other traits.
        """
        sampling = Sampling(temperature, checks.whole("top_k", top_k, 1, WORDS // 2))
        ids = tokenizer.encode(prompt)
        rounds = recorded_rounds(target, drafter, tokenizer, ids, max_new_tokens, sampling, seed)
        return cls(rounds=rounds, dice=not sampling.greedy, **options)


def recorded_rounds(
    target: CausalLM,
    drafter: Drafter,
    tokenizer,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    sampling: Sampling,
    seed: int = 0,
) -> list[dict]:
    """Rounds of a chain as JSON, with the rows of both models over the few words that have a chance.

    A round is {"before": end of the text before it, "context": its tokens, "rows", "accepted",
    "token": {"word", "kind", "u"}, "caches": {"target", "draft"}}. Of γ + 1 rows, row i is {"words"
    in the order of their ids, "p", "tests"}; a test is {"word": which one was drafted, "q": the row
    it was drawn from, None if it was chosen, "u": the uniform of its coin, None where none fell,
    "kept": None where it was not tested}. Caches are lengths before the round, when they were
    longest, and after the cut; "draft" is None where the session has no cache of its own.

    Raises:
        ValueError: a tree was drafted, or a row has more than WORDS words.
    """
    rng = RecordingRng(seed)
    watch = Watch(drafter, tokenizer, sampling)
    steps = stream(
        target,
        prompt_ids,
        watch,
        max_new_tokens,
        sampling.temperature,
        sampling.top_k,
        rule=watch.verifier,
        rng=rng,
    )
    for _ in steps:
        watch.close()
    return watch.rounds


class Watch(Drafter):
    """A drafter, and the rounds that were made with it so far."""

    def __init__(self, drafter: Drafter, tokenizer, sampling: Sampling):
        self.drafter = drafter
        self.tokenizer = tokenizer
        self.shown = Sampling(1.0, sampling.top_k) if sampling.greedy else sampling
        self.hidden_layers = drafter.hidden_layers
        self.verifier = Looking(self, default_rule(sampling))
        self.rounds: list[dict] = []

    def start(self, context: Context) -> Session:
        self.cache = context.cache
        self.session = self.drafter.start(context)
        self.lengths = {"target": self.cache.length, "draft": self.drafted}
        return self.session

    def check(self, target: CausalLM, positions: int) -> None:
        self.drafter.check(target, positions)

    @property
    def drafted(self) -> int | None:
        """The length of the session's own cache."""
        cache = getattr(self.session, "cache", None)
        return cache.length if isinstance(cache, Cache) and cache is not self.cache else None

    def close(self) -> None:
        """Note what the caches hold after the round's cut, which is where the next one begins."""
        self.lengths = {"target": self.cache.length, "draft": self.drafted}
        caches = self.rounds[-1]["caches"]
        for name, length in self.lengths.items():
            caches[name] = None if length is None else [*caches[name], length]


class Looking(PlainVerifier):
    """A rule, and what it looked at."""

    def __init__(self, watch: Watch, rule):
        super().__init__(rule)
        self.watch = watch
        self.name = rule.name
        self.lossless = rule.lossless

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        if not proposal.tree.is_chain:
            raise ValueError("the drafter proposed a tree: rounds are recorded of chains")
        watch = self.watch
        uniforms = context.rng.uniforms
        used = len(uniforms)
        verdict = super().verify(proposal, scores, context)
        coins = uniforms[used:]
        tested = sum(verdict.tests)
        text = context.tokens.tolist()
        rows = watch.shown(scores.logits[0])
        drafts = proposal.tree.tokens.tolist()
        accepted = len(verdict.path)
        written = []
        for i, p in enumerate(rows):
            draft = drafts[i] if i < len(drafts) else None
            drawn = draft is not None and proposal.probs is not None and bool(coins)
            q = proposal.probs[i] if drawn else None
            own = [verdict.token] if i == accepted else []
            ids, row = _row(p, q, draft, own, watch.tokenizer)
            if i == accepted:
                word = ids.index(verdict.token)
            for test in row["tests"]:
                test["u"] = round(coins[i], 5) if i < min(tested, len(coins)) else None
                test["kept"] = i < accepted if i < tested else None
            written.append(row)
        watch.rounds.append(
            {
                "before": shown_end(watch.tokenizer.decode(text), 150),
                "context": len(text),
                "rows": written,
                "accepted": accepted,
                "token": {
                    "word": word,
                    "kind": verdict.kind,
                    "u": round(coins[-1], 5) if coins else None,
                },
                "caches": {
                    "target": [watch.lengths["target"], watch.cache.length],
                    "draft": [watch.lengths["draft"], watch.drafted],
                },
            }
        )
        return verdict


def _row(p, q, draft: int | None, more: Sequence[int], tokenizer):
    """One place of the picture: the ids of its words, in their order, and the words with p and q."""
    chances = p if q is None else p + q
    named = [*more] if draft is None else [*more, draft]
    ids = sorted({*chances.nonzero()[:, 0].tolist(), *named})
    if len(ids) > WORDS:
        raise ValueError(f"a row has {len(ids)} words: must be at most {WORDS}; set top_k")
    listed = lambda row: [round(float(row[token]), 5) for token in ids]
    tests = []
    if draft is not None:
        tests = [{"word": ids.index(draft), "q": None if q is None else listed(q)}]
    words = [tokenizer.decode([token]) for token in ids]
    return ids, {"words": words, "p": listed(p), "tests": tests}
