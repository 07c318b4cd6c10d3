"""Record SmolLM2's next words: a few distributions, and three continuations to compare.

    python -m benchmarks run next-words      # half a minute

Chapter 1 reads the recording: its interactive shows the distributions, and its text shows the
continuations. Nothing here is timed.
"""

from specdec_book.viz.next_word import record_distribution
from specdec_lite import generate

from .smollm2 import OnSmolLM2

PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a little",
    "She opened the door and saw",
    "My favourite fruit is the",
    "Two plus two equals",
)
STORY = "The old lighthouse keeper looked out at the sea and"
SETTINGS = {
    "greedy": {"temperature": 0.0},
    "T = 0.7, top-p 0.9": {"temperature": 0.7, "top_p": 0.9},
    "T = 1.5": {"temperature": 1.5},
}


class NextWords(OnSmolLM2):
    """The parts are distributions of next words, and continuations of one story."""

    name = "next-words"
    what = "SmolLM2's next words"
    time = "30 seconds"
    quick = ("--new-tokens", "4")

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--new-tokens", type=int, default=40, help="tokens per continuation")

    def parts(self):
        return ["contexts", "texts"]

    def run(self, part):
        model, tokenizer = self.model
        if part == "contexts":
            score = lambda ids: model.score(ids, model.new_cache(), last=True).logits[0, -1]
            return [
                record_distribution(prompt, score(tokenizer.encode(prompt)), tokenizer)
                for prompt in PROMPTS
            ]
        ids, count = tokenizer.encode(STORY), self.options.new_tokens
        texts = {}
        for name, settings in SETTINGS.items():
            out = generate(model, ids, max_new_tokens=count, stop_token_ids=(), seed=1, **settings)
            texts[name] = tokenizer.decode(out.tokens.tolist())
        return texts

    def summarise(self, rows):
        about = getattr(self.model[0], "about", "a small model")
        return {"model": about, "story": STORY, **rows}
