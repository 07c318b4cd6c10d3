"""The interactives whose Python is their state: one class per module, one line per trait.

A module of `static/` draws it; formulas that it computes are compared with the library's by tests.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from traitlets import Bool, Dict, Enum, Float, Int, List, TraitError, Unicode, default, validate

from specdec_book import recordings
from specdec_book.viz.interactive import Interactive, must
from specdec_book.viz.trace import shorten_prompt
from specdec_lite.checks import whole
from specdec_lite.decoding import Output
from specdec_lite.proposal import Step
from specdec_lite.tree import TokenTree

RULES = tuple(
    "exact match once likeliest confidence at_least lenient from_q from_p bonus_argmax soft_argmax"
    " before_temperature accept_zero dropped".split()
)
"""Rules of the bench: three lossless ones, three that readers invent, one lossy on purpose, seven
published mistakes."""
TASKS = ("from_p", "lenient", "second_draw")
WIDTHS = (4.0, 2.0, 1.0, 0.5)
"""Bytes per weight in the roofline's menu."""
POLICIES = ("constant", "heuristic", "confidence", "entropy", "oracle")
MAX_BUDGET = 64
MAX_NODES = 16
MAX_DEPTH = 6
MASKS = ("tree", "causal")
MOST_BLOCKS = 13
"""Largest number of blocks that the block stepper shows."""


def distribution(row: list[float]) -> List:
    """Return the trait of a distribution over 3–8 tokens."""
    numbers = List(Float(min=0, max=1), row, minlen=3, maxlen=8)
    return must("sum to 1", lambda row: abs(sum(row) - 1) <= 1e-6, numbers)


class Bench(Interactive):
    """Bars of p and q over 3–8 tokens, and the distribution that an acceptance rule emits."""

    module = "bench"
    label = "Rejection-sampling bench: what an acceptance rule emits for any p and q"

    p = distribution([0.5, 0.3, 0.2])  # the target's
    q = distribution([0.3, 0.5, 0.2])  # the draft's
    rule = Enum(RULES, "exact")
    task = Enum(TASKS)  # what the reader is asked to find
    seed = Int(0, min=0)  # of the draws
    siblings = Bool(False)  # whether several tokens are drawn at one position and verified in turn
    rejected = Int(0, min=0, max=3)  # siblings so far; p then becomes the residual

    def __init__(self, **traits):
        super().__init__(**traits)
        if len(self.p) != len(self.q):
            raise TraitError(
                f"p has {len(self.p)} tokens and q has {len(self.q)}: must have the same number"
            )

    @default("task")
    def _default_task(self):
        return "second_draw" if self.siblings else "from_p"


class Explorer(Interactive):
    """Sliders for α, γ and c over the speedup curve, its optimum and its break-even region.

    A preset is {"label", "group", any of the numbers}; they are listed in the menu after the paper's
    own. One with "measured" (a speedup) is drawn as a square at its gamma. With `levers` the presets
    are measured pairs alone, which also have "by" (who measured), "source" (an address) and "facts"
    ([name, text]): the square stays while sliders move, and the task asks which slider raises the
    prediction.
    """

    module = "explorer"
    label = "Explorer: speedup by draft length, for any acceptance rate α and draft cost c"

    alpha = Float(0.8, min=0, max=1)
    gamma = Int(4, min=1, max=24)
    c = Float(0.1, min=0, max=1.2)  # time of one draft pass over one target pass
    c_hat = Float(0.1, min=0, max=1.2)  # the same of their operations
    step_cost = Float(0.0, min=0, max=0.5)  # of a verified token: T(k)/T(1) = 1 + step_cost·(k − 1)
    overhead = Float(0.0, min=0, max=2)  # time of everything else in a round over T(1)
    plain_overhead = Float(0.0, min=0, max=2)  # the same in a plain step
    levers = Bool(False)
    presets = List(Dict())

    @classmethod
    def of_pairs(cls, presets: Sequence[dict]) -> "Explorer":
        """Return the explorer of measured pairs, with the first one chosen."""
        start = {name: presets[0][name] for name in cls.class_trait_names() if name in presets[0]}
        return cls(levers=True, presets=list(presets), **start)


class LogLine(Interactive):
    """A box for a log line, and τ, γ and α that follow from it, as `explain` reads them."""

    module = "log_line"
    label = "Read a log line: τ, γ and α that follow from what an engine prints"

    text = Unicode("")  # a log line, counters or JSON of an engine
    gamma = Int(0, min=0, max=64)  # drafted tokens per round if the text lacks them; 0: not given


class Lookup(Interactive):
    """Texts that a target wrote, with an arc from every proposal of prompt lookup to its source."""

    module = "lookup"
    label = "Lookup explorer: every proposal of prompt lookup, and where it was copied from"

    texts = List(Dict())  # {"name", "tokens": texts, "ids", "start": position of the answer} each
    text = Int(0, min=0)  # number of the text on display
    n = Int(3, min=1, max=5)  # length of the longest n-gram that is looked up
    gamma = Int(8, min=1, max=16)
    latest = Bool(True)  # whether to copy from the latest occurrence; else from the earliest
    round = Int(0, min=0)  # number of the round that is explained

    @classmethod
    def of(
        cls, answers: Mapping[str, tuple[Sequence[int], Sequence[int]]], tokenizer, **settings
    ) -> "Lookup":
        """Return the explorer of some answers."""
        texts = []
        for name, (prompt, answer) in answers.items():
            whole(f"tokens of the prompt of {name!r}", len(prompt), 1)
            whole(f"tokens of the answer of {name!r}", len(answer), 1)
            ids = [int(token) for token in (*prompt, *answer)]
            tokens = [tokenizer.decode([token]) for token in ids]
            texts.append({"name": name, "tokens": tokens, "ids": ids, "start": len(prompt)})
        return cls(texts=texts, **settings)


class NextWord(Interactive):
    """Sliders over a recorded distribution of the next token, and the uniform u that selects it."""

    module = "next_word"
    label = "The next word: what temperature, top-k and top-p do to a real model's choice"

    # of the recording "next-words": the 40 likeliest tokens with their logits, and all other logits
    # rounded to quarters and counted
    contexts = List(Dict())
    context = Int(0, min=0)  # number of the distribution on display
    temperature = Float(1.0, min=0, max=2)
    top_k = Int(0, min=0, max=50)  # 0 keeps every token
    top_p = Float(1.0, min=0.05, max=1)
    u = Float(0.42, min=0, max=0.99)

    @classmethod
    def load(cls) -> "NextWord":
        """Return the interactive with the contexts of the recording "next-words"."""
        return cls(contexts=recordings.load("next-words").data["contexts"])

    @validate("context")
    def _exists(self, proposal):
        if proposal.value and proposal.value >= len(self.contexts):
            raise TraitError(
                f"context={proposal.value}: must be less than {len(self.contexts)}, the number of"
                " contexts"
            )
        return proposal.value


class Roofline(Interactive):
    """Sliders for a model, a batch and a machine over the roofline and the least time of a pass."""

    module = "roofline"
    label = "Roofline explorer: time of a pass, which roof limits it, and how long the chip idles"

    parameters = Float(70e9, min=1e6, max=1e12)
    bytes_per_weight = Enum(WIDTHS, 2.0)
    bandwidth = Float(2e12, min=1e9, max=1e13)  # bytes per second
    throughput = Float(312e12, min=1e10, max=1e16)  # operations per second
    batch = Int(1, min=1, max=256)
    tokens = Int(1, min=1, max=32)  # per sequence and pass
    cache = Float(0.0, min=0, max=1e11)  # bytes of keys and values per sequence


class SecondWord(Interactive):
    """Two heads that draft “of course” and “no problem” in one pass.

    The target's distributions are part of the module.
    """

    module = "second_word"
    label = "Two words drafted in one pass: how much the second head knows of the first word"

    sees = Bool(False)  # whether head 2 is given the first word
    bias = Float(0.0, min=0.0, max=5.0)  # Markov bias on the logit of the word that fits the first
    honest = Bool(True)  # whether the rule gets the row of the draw, or else that before the bias


class SkipSwitches(Interactive):
    """A switch for every attention and MLP of a target, with α, c and the predicted speedup.

    A target is {"layers", "group", "rates", "costs"} by name. "layers": number of pairs of switches,
    1 … 8. "group": neighboring blocks per pair. "rates": acceptance rates of all 4^layers sets,
    permilles of three digits each (the page gets hundredths). "costs": bytes of the "attention" and
    the "mlp" of one pair and of the "head".
    """

    module = "skip_switches"
    label = (
        "Skip switches: acceptance, cost and predicted speedup of a draft without some sublayers"
    )

    targets = Dict()
    target = Unicode()  # name of the target on display
    mask = Int(0, min=0)  # the skipped sublayers, two bits a pair; the first pair's are the highest

    def __init__(self, targets: dict[str, dict], **traits):
        for name, each in targets.items():
            if len(each["rates"]) != 3 * (sets := 4 ** each["layers"]):
                raise TraitError(
                    f"targets[{name!r}] has {len(each['rates'])} digits of rates: must be 3 for"
                    f" each of {sets} sets"
                )
        targets = {
            name: each | {"rates": hundredths(each["rates"])} for name, each in targets.items()
        }
        super().__init__(targets=targets, **{"target": next(iter(targets), "")} | traits)
        if self.target not in targets:
            raise TraitError(f"target={self.target!r}: must be one of {list(targets)}")


def hundredths(rates: str) -> str:
    """Return rates of three digits each as rates of two digits each.

    0.995 and more become 0.99: only the whole target is always accepted.
    """
    parts = (int(rates[start : start + 3]) for start in range(0, len(rates), 3))
    return "".join(f"{min(99, round(rate / 10)):02d}" for rate in parts)


class StopExplorer(Interactive):
    """A text whose drafts end where a policy stops, beside the best constant length and an oracle.

    A place is {"q": draft's probability of each token it would draft from there, "h": entropies of
    the draft's rows in nats, "right": number of drafts that the target accepts}.
    """

    module = "stop_explorer"
    label = "Stop explorer: one recorded text, and where each policy ends its drafts"

    words = List(Unicode(), minlen=1)
    places = List(Dict(), minlen=1)  # one for each word
    policy = Enum(POLICIES, "constant")
    length = Int(4, min=1)  # of the constant policy's drafts, and of the heuristic's first one
    threshold = Float(0.4, min=0, max=1)  # of the confidence policy
    nats = Float(1.0, min=0)  # threshold of the entropy policy
    cost = Float(0.1, min=0, max=1)  # of a drafted token, in target passes


SHIFTED = {
    "words": ["It", " was", " a", " dark", " and"],
    "laws": [
        {"agrees": 0.3, "law": [[" and", 0.3], [" night", 0.25], [",", 0.2], [" room", 0.1]]},
        {"agrees": 0.6, "law": [[" and", 0.85], [" night", 0.08], [",", 0.03], [" room", 0.01]]},
    ],
}
"""The timelines of a page that states none."""


def is_part(entry: dict) -> bool:
    """Return whether the pairs (word, q) of an entry are a part of a distribution."""
    q = [probability for _, probability in entry.get("law", ())]
    return bool(q) and min(q) >= 0 and sum(q) <= 1 + 1e-6


class Timelines(Interactive):
    """The row of features above the row of tokens; the reader drags one along the other.

    At a shift of one, each feature is paired with the token that was drawn from it. For shift 0 and
    1, "law" has (word, q) pairs, the likeliest first; "agrees" is the fraction of positions at which
    the head trained with that shift agrees with the target.
    """

    module = "timelines"
    label = "Features and tokens on two timelines, and the drafter's q for either shift"

    words = List(Unicode(), SHIFTED["words"], minlen=3)  # the last is the target's next token
    laws = must(
        "have probabilities each, none negative, with a sum of at most 1",
        lambda laws: all(map(is_part, laws)),
        List(Dict(), SHIFTED["laws"], minlen=2, maxlen=2),
    )
    shift = Int(0, min=0, max=1)


FALLING = "not increase from rank to rank, and sum to at most 1"
falls = lambda row: bool(row) and row == sorted(row, reverse=True) and sum(row) <= 1 + 1e-9


class TreeBudget(Interactive):
    """The best tree of a number of nodes, its expected tokens, and its speedup at a measured T(k)."""

    module = "tree_budget"
    label = "Tree-budget explorer: the best tree of a budget, and the budget that pays"

    # probability that the first, second, … sibling is the accepted one
    rates = must(
        FALLING, falls, List(Float(min=0, max=1), [0.6, 0.15, 0.06, 0.03], minlen=1, maxlen=8)
    )
    ks = must(  # numbers of tokens in a pass
        "begin with 1 and ascend",
        lambda ks: ks[:1] == [1] and ks == sorted(set(ks)),
        List(Int(min=1), [1, 65]),
    )
    times = List(Float(min=0), [1.0, 3.0])  # T(k)/T(1) for each of `ks`
    draft = Float(0.06, min=0, max=2)  # cost of drafting one level, in units of T(1)
    overhead = Float(0.05, min=0, max=2)  # of everything else in a round
    nodes = Int(8, min=0, max=MAX_BUDGET)
    stretch = Float(1.0, min=0, max=4)  # factor on the growth of T(k) beyond T(1): 1 as measured

    def __init__(self, **traits):
        super().__init__(**traits)
        if len(self.ks) != len(self.times):
            raise TraitError(
                f"times has {len(self.times)} entries: must have one for each of {len(self.ks)} ks"
            )


GUESSES = {
    "context": "Once upon a time there was a",
    "accuracies": [
        [0.6, 0.15, 0.08, 0.04],
        [0.45, 0.14, 0.08, 0.05],
        [0.32, 0.12, 0.07, 0.05],
        [0.22, 0.1, 0.06, 0.04],
    ],
    "guesses": [
        ["little", "girl", "boy", "dog"],
        ["girl", "boy", "named", "dog"],
        ["named", "who", "called", "and"],
        ["Lily", "Tom", "Max", "Mia"],
    ],
}
"""What the heads of a tree guess on a page that states no accuracies."""


class TreeExplorer(Interactive):
    """A token tree that the reader edits, with its mask, its positions and its value.

    The value of a tree is 1 + Σ over nodes of the product of accuracies along the node's path: the
    expected tokens per target pass if the heads are right independently (Cai et al. 2024, section
    2.3.3). A node's r-th child holds the r-th guess. `parents` and `mask_kind` follow the reader: a
    kernel reads the tree as `TokenTree(tokens, explorer.parents)`.
    """

    module = "tree_explorer"
    label = (
        "Tree-mask explorer: a token tree, the mask that keeps its branches apart, and what the"
        " tree is worth"
    )

    parents = List(Int(), [-1, -1, 0, 0, 0, 1, 1, 1], maxlen=MAX_NODES)  # as in `TokenTree`
    # [head d][rank r]: probability that guess r of head d is right if the path to it is
    accuracies = must(
        f"be rows that do {FALLING}",
        lambda rows: all(map(falls, rows)),
        List(List(Float(min=0, max=1)), GUESSES["accuracies"], minlen=1, maxlen=MAX_DEPTH),
    )
    budget = Int(8, min=1, max=MAX_NODES)  # nodes in the reader's task
    mask_kind = Enum(MASKS, "tree")  # ancestors and itself, or all earlier nodes
    guesses = List(List(Unicode()))  # words by head and rank; may be empty
    context = Unicode()  # the committed text; may be empty

    def __init__(self, **traits):
        if "accuracies" not in traits:
            traits = {"guesses": GUESSES["guesses"], "context": GUESSES["context"]} | traits
        super().__init__(**traits)
        try:
            depth = TokenTree([0] * len(self.parents), self.parents).depth.tolist()
        except ValueError as error:
            raise TraitError(str(error)) from None
        rows = dict(enumerate(self.accuracies))
        for parent, count in Counter(self.parents).items():
            ranks = len(rows.get(depth[parent] + 1 if parent >= 0 else 0, ()))
            if count > ranks:
                raise TraitError(
                    f"parents gives node {parent} {count} children: accuracies has {ranks} guesses"
                    " there"
                )


# Recorded runs ------------------------------------------------------------------------------------


class Race(Interactive):
    """Two lanes write the same text on one clock: slowly at first, then at the recorded speed."""

    module = "race"
    label = "A race on one clock: plain decoding and speculative decoding write the same text"

    races = List(Dict())  # one per text, as in the recording `race`
    about = Unicode()  # one line that names the models and the machine
    race = Int(0, min=0)  # number of the text on display
    autoplay = Bool(False)  # whether to start once in view, again and again until it is touched

    @classmethod
    def load(cls, name: str = "race", **options) -> "Race":
        """Return the races of the recording `name`."""
        data = recordings.load(name).data
        fields = {field: data[field] for field in ("races", "about", "race")}
        fields["races"] = [race | {"request": whole_request(race)} for race in data["races"]]
        return cls(**(fields | options))


def whole_request(race: dict) -> str:
    """Return a recorded request with the text below its first line, found by its answer."""
    words = [word for step in race["lanes"]["plain"] for _, word in step["words"]]
    rows = recordings.load("answers").data["answers"]
    asked = {row["answer"].strip(): row["request"] for row in rows}
    return asked.get("".join(words).strip(), race["request"])


class Round(Interactive):
    """Recorded rounds, played or stepped: drafts, one target pass, tests, the added token, caches.

    It pauses and asks the reader for decisions; greedy rounds draw no uniforms. A round holds the
    words, p and tests (q, u, whether the draft was kept) of each position, the number of accepted
    drafts, the added token, and three lengths of both caches: before, drafted, after.
    """

    module = "round"
    label = "One round of speculative decoding: drafts, one target pass, tests, accepted tokens"

    rounds = List(Dict())
    about = Unicode()  # one line that names the models
    caches = Bool(True)  # whether to show both caches
    numbers = Bool(True)  # whether the sentences state p, q and u
    autoplay = Bool(False)  # whether to start playing once the picture is in view
    moment = Int(0, min=0)  # number of the moment on display, over all rounds

    @classmethod
    def load(cls, name: str = "rounds", **options) -> "Round":
        """Return the rounds of the recording `name`."""
        data = recordings.load(name).data
        return cls(**({field: data[field] for field in ("rounds", "about")} | options))


class Stepper(Interactive):
    """A recorded speculative run: drafts, target passes, tests with their uniforms, cache lengths.

    A round has one moment for every draft pass, one for the target pass, one for every test, one for
    the added token and one for cutting the caches. It holds the context, the length of the draft's
    cache, the drafts (text, q, p, the uniforms drawn and tested), the number of accepted ones and the
    added token.
    """

    module = "stepper"
    label = "Round stepper: one real speculative run, moment by moment"

    rounds = List(Dict())
    moment = Int(0, min=0)

    @classmethod
    def load(cls, name: str = "rounds") -> "Stepper":
        """Return the run of the recording `name`."""
        return cls(rounds=recordings.load(name).data["run"]["rounds"])


class JacobiGrid(Interactive):
    """Runs of one text from different first guesses, stepped pass by pass.

    Source: Santilli et al. 2023.
    """

    module = "jacobi_grid"
    label = "Jacobi grid: guesses for all positions in parallel, replaced pass by pass until final"

    prompt = Unicode()  # text before the run
    runs = List(
        Dict(), minlen=1
    )  # {"start": name of the first guess, "rows": `record_grid`'s} each
    run = Int(0, min=0)  # number of the run on display
    moment = Int(0, min=0)  # number of finished passes


def chains(output: Output, tokenizer) -> Iterator[tuple[Step, list[str], str | None]]:
    """Yield each pass of a run of chains, the words that it drafted, and the word that it added."""
    for step in output.steps:
        words = [tokenizer.decode([token]) for token in step.tree.tokens.tolist()]
        yield step, words, None if step.token is None else tokenizer.decode([step.token])


def record_grid(output: Output, tokenizer) -> list[dict]:
    """Return the passes of a run of whole chains as JSON types."""
    return [
        {"guesses": guesses, "accepted": step.accepted, "token": token}
        for step, guesses, token in chains(output, tokenizer)
    ]


class BlockStepper(Interactive):
    """A recorded greedy run in blocks: predict, verify in one pass, accept a prefix.

    The pass that verifies a block also predicts the next one. There is one moment for the first
    prediction; then for every block one for the pass, one for the accepted prefix and one for the
    prediction that the same pass made. Source: Stern, Shazeer and Uszkoreit 2018, sections 3 and 4.
    """

    module = "block_stepper"
    label = "Block stepper: one real run of blockwise parallel decoding, moment by moment"

    prompt = Unicode()  # end of the text before the run
    k = Int(4, min=1)  # block size, the target's own token included
    rounds = List(Dict())  # one per target pass, as `record_blocks` returns them
    moment = Int(0, min=0)

    @classmethod
    def record(cls, output: Output, tokenizer, prompt_ids: Sequence[int], k: int) -> "BlockStepper":
        """Return the stepper of a finished greedy run's first blocks."""
        rounds = record_blocks(output, tokenizer, prompt_ids)[:MOST_BLOCKS]
        return cls(prompt=shorten_prompt(tokenizer.decode(prompt_ids)), k=k, rounds=rounds)


def record_blocks(output: Output, tokenizer, prompt_ids: Sequence[int]) -> list[dict]:
    """Return the passes of a greedy run as JSON types."""
    context, root, blocks = len(prompt_ids), prompt_ids[-1], []
    for step, drafts, token in chains(output, tokenizer):
        block = {"context": context, "root": tokenizer.decode([root]), "accepted": step.accepted}
        blocks.append(block | {"drafts": drafts, "token": token})
        context, root = context + len(step.tokens), step.tokens[-1]
    return blocks
