"""Jacobi iteration in a window beside the text; its n-grams are proposed. Source: Fu et al. 2024."""

from specdec_lite import checks
from specdec_lite.engine.cache import Scores
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Session, Shape
from specdec_lite.tree import TokenTree


class LookaheadDrafter(Drafter):
    """Propose n-grams that the target has said before, while a window makes new ones.

    Args:
        window: W ≥ 1, places ahead that are guessed at once.
        ngram: N ≥ 2, tokens of an n-gram; its first one is the key, the others are proposed.
        guesses: G ≥ 1, n-grams kept for a token; the one not seen for longest goes.
        from_prompt: whether the n-grams of the prompt are kept too.

    Window and proposals are one tree and one pass; only the n-grams may be accepted. All of it is
    chosen from the past alone: a lossless rule keeps the target's law at every temperature.
    """

    def __init__(
        self, window: int = 5, ngram: int = 4, guesses: int = 5, from_prompt: bool = False
    ):
        self.window = checks.whole("window", window, 1)
        self.ngram = checks.whole("ngram", ngram, 2)
        self.guesses = checks.whole("guesses", guesses, 1)
        self.from_prompt = from_prompt

    def start(self, context: Context) -> "LookaheadSession":
        return LookaheadSession(self, context.tokens.tolist())

    def shape(self) -> Shape:
        depth = self.ngram - 1
        nodes = depth * self.window - 1 + depth * self.guesses
        return Shape(depth + max(self.window - 2, 0), nodes)


class LookaheadSession(Session):
    """rows: up to N − 1 rows of guesses, each what the target said to the one before it."""

    def __init__(self, drafter: LookaheadDrafter, text: list[int]):
        self.drafter = drafter
        self.pool: dict[int, list[tuple[int, ...]]] = {}
        width = drafter.window
        self.rows = [(text * width)[len(text) * width - width + 1 :]]
        if drafter.from_prompt:
            for start in range(len(text) - drafter.ngram + 1):
                self.remember(text[start : start + drafter.ngram])

    def remember(self, gram: list[int] | tuple[int, ...]) -> None:
        first, *rest = gram
        others = [kept for kept in self.pool.get(first, ()) if kept != tuple(rest)]
        self.pool[first] = [tuple(rest), *others][: self.drafter.guesses]

    def propose(self, context: Context) -> Proposal:
        self.root = int(context.tokens[-1])
        tree, ends = window_tree(self.rows)
        grams = [TokenTree.chain(gram) for gram in self.pool.get(self.root, ())]
        tree, (places, *branches) = TokenTree.merge([tree, *grams])
        self.ends = [0 if end < 0 else places[end] + 1 for end in ends]
        self.fed = len(tree) + 1
        return Proposal(tree, candidates=frozenset().union(*branches))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        if scores.logits.shape[1] < self.fed:
            return  # the tree was cut: the text ends
        said = scores.logits[0, self.ends].argmax(-1).tolist()
        self.rows.append(said)
        if len(self.rows) == self.drafter.ngram:
            for gram in zip([self.root, *self.rows[0]], *self.rows[1:]):
                self.remember(gram)
            self.rows = [self.rows[1][1:], *self.rows[2:]]


def window_tree(rows: list[list[int]]) -> tuple[TokenTree, list[int]]:
    """The window as a tree, and the last node of every column (−1: the root). The first row is a
    chain behind the root, whose column is 0; every other entry hangs from the row before it.
    """
    tokens = list(rows[0])
    parents = list(range(-1, len(tokens) - 1))
    ends = list(range(-1, len(tokens)))
    for row in rows[1:]:
        parents += ends
        ends = list(range(len(tokens), len(tokens) + len(row)))
        tokens += row
    return TokenTree(tokens, parents), ends
