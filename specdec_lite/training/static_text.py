"""Thousands of texts that a native target writes on a GPU: rows of fixed shapes, refilled in turn.

Every step feeds one token of every row. A row has a length of its own, so a finished row takes the
next prompt while the others continue. On a GPU a step is a captured graph, one for each width of
the cache; where capturing fails, the same steps run uncaptured.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from specdec_lite.engine.models import CausalLM

WIDTH = 64
"""Widths of the cache that attention reads are multiples of this."""
STEPS = 16
"""Steps between two looks at which rows are finished."""
GRAM = 8
"""Number of tokens whose repetition ends a text."""


@dataclass(frozen=True, slots=True)
class Order:
    """A text to write.

    Attributes:
        prompt: ids of the prompt, two or more.
        temperature: 0 takes the likeliest token.
        kind: kind of the prompt.
    """

    prompt: tuple[int, ...]
    temperature: float
    kind: str = "text"


class Writer:
    """Writes many texts at a time, each up to a stop token or to a number of new tokens.

    Args:
        target: a native model; it is not changed.
        rows: texts at a time.
        capacity: tokens of a text with its prompt, at most; a multiple of `WIDTH`.
        stop_token_ids: tokens that end a text.
        capture: whether to capture the steps; None: if the target is on a GPU.
    """

    def __init__(
        self,
        target: CausalLM,
        rows: int,
        capacity: int,
        stop_token_ids: Sequence[int],
        capture: bool | None = None,
    ):
        self.model, self.device = target.model, target.device
        self.capacity = -(-capacity // WIDTH) * WIDTH
        self.capture = self.device.type == "cuda" if capture is None else capture
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        config = target.model.config
        shape = (config.num_layers, rows, config.num_kv_heads, self.capacity, config.head_size)
        with torch.inference_mode():
            zeros = lambda *sizes, **options: torch.zeros(*sizes, device=self.device, **options)
            self.keys, self.values = (zeros(shape, dtype=target.dtype) for _ in range(2))
            self.text = zeros(rows, self.capacity, dtype=torch.long)
            self.token = zeros(rows, dtype=torch.long)  # the next one to feed
            self.length = zeros(rows, dtype=torch.long)  # tokens in the cache
            self.limit = zeros(rows, dtype=torch.long)  # tokens of a full text
            self.temperature = zeros(rows, 1)
            self.active = zeros(rows, dtype=torch.bool)
            self.stops = torch.tensor(list(stop_token_ids), device=self.device)
            self.slots = torch.arange(self.capacity, device=self.device)

    @torch.inference_mode()
    def step(self, width: int) -> None:
        """Feed one token of every row and choose the next one; finished rows stay as they are.

        Args:
            width: slots that attention reads, more than any active row has filled.
        """
        slot = self.length[:, None]
        layers = [
            (keys[:, :, :width], values[:, :, :width])
            for keys, values in zip(self.keys, self.values)
        ]
        unseen = self.slots[:width] > slot  # [B, w]
        bias = torch.zeros(unseen.shape, dtype=self.keys.dtype, device=self.device)
        bias = bias.masked_fill(unseen, float("-inf"))[:, None, None]
        logits = self.model(self.token[:, None], SimpleNamespace(layers=layers), slot, slot, bias)[
            :, 0
        ].float()
        # The largest of logits + T · Gumbel is a draw at temperature T, and the likeliest at T = 0.
        noise = torch.empty_like(logits).exponential_().clamp_(min=1e-10).log_()
        chosen = logits.sub_(noise.mul_(self.temperature)).argmax(-1)
        chosen = torch.where(self.active, chosen, self.token)
        place = (self.length + 1).clamp(max=self.capacity - 1)[:, None]
        kept = torch.where(self.active[:, None], chosen[:, None], self.text.gather(1, place))
        self.text.scatter_(1, place, kept)
        self.length += self.active
        self.token.copy_(chosen)
        stopped = (chosen[:, None] == self.stops).any(1)
        self.active &= ~stopped & (self.length + 1 < self.limit)

    @torch.inference_mode()
    def capture_steps(self) -> None:
        """Capture a graph for every width; if that fails, say so and go on without graphs."""
        if not self.capture:
            return
        self.active.zero_()
        self.length.zero_()
        pool = None
        try:
            for width in range(WIDTH, self.capacity + 1, WIDTH):
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    for _ in range(2):
                        self.step(width)
                torch.cuda.current_stream().wait_stream(stream)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    self.step(width)
                pool = graph.pool() if pool is None else pool
                self.graphs[width] = graph
        except RuntimeError as error:
            self.graphs.clear()
            torch.cuda.synchronize()
            print(f"no graphs: {str(error).splitlines()[0]}", flush=True)

    def check_graphs(self, prompts: Sequence[tuple[int, ...]], new_tokens: int = 32) -> None:
        """Drop the graphs if they write other greedy texts than uncaptured steps, and say so.

        Args:
            prompts: some prompts of different lengths.
            new_tokens: tokens to compare after each.
        """
        graphs, self.graphs = self.graphs, {}
        if not graphs:
            return
        orders = [Order(prompt, 0.0) for prompt in prompts]
        row = lambda pair: pair[1].tolist()
        plain = sorted(map(row, self.write(orders, new_tokens)))
        self.graphs = graphs
        captured = sorted(map(row, self.write(orders, new_tokens)))
        same = sum(one == other for one, other in zip(plain, captured))
        if 2 * same < len(plain):
            self.graphs = {}
            print(f"graphs left out: {same} of {len(plain)} texts equal uncaptured steps'")

    @torch.inference_mode()
    def refill(self, rows: Tensor, orders: Sequence[Order], new_tokens: int) -> None:
        """Begin new texts in finished rows.

        All tokens of a prompt but the last are fed here, the last one by the next step.

        Args:
            rows: [r] numbers of the rows.
            orders: r texts to write.
            new_tokens: tokens to add to each prompt, at most.
        """
        sizes = torch.tensor([len(order.prompt) for order in orders])
        most = int(sizes.max())
        padded = [order.prompt + order.prompt[-1:] * (most - len(order.prompt)) for order in orders]
        prompts = torch.tensor(padded).to(self.device)
        rows = rows.to(self.device)
        shape = (len(self.keys), 2, len(rows), self.keys.shape[2], most, self.keys.shape[-1])
        fresh = torch.zeros(shape, dtype=self.keys.dtype, device=self.device)
        self.model(prompts, SimpleNamespace(layers=[tuple(layer) for layer in fresh]), head=False)
        self.keys[:, rows, :, :most] = fresh[:, 0]
        self.values[:, rows, :, :most] = fresh[:, 1]
        self.text[rows, :most] = prompts
        self.length[rows] = sizes.to(self.device) - 1
        self.limit[rows] = (sizes + new_tokens).clamp(max=self.capacity).to(self.device)
        self.token[rows] = prompts[:, -1]
        temperatures = torch.tensor([[order.temperature] for order in orders])
        self.temperature[rows] = temperatures.to(self.device)
        self.active[rows] = True

    @torch.inference_mode()
    def write(
        self, orders: Sequence[Order], new_tokens: int, seconds: float = float("inf")
    ) -> Iterator[tuple[Order, Tensor]]:
        """Yield orders with their texts [n], prompt and stop token included, as they finish.

        When the time is over, the unfinished texts come as they are.

        Args:
            orders: taken in this order; neighbours of equal length save time.
            new_tokens: tokens to add to each prompt, at most.
            seconds: time after which no step is made.
        """
        began = time.monotonic()
        waiting = iter(orders)
        self.active.zero_()
        self.length.zero_()
        current: dict[int, Order] = {}
        while True:
            active = self.active.tolist()
            lengths = self.length.tolist()
            over = time.monotonic() - began > seconds
            done = [row for row in current if over or not active[row]]
            if done:
                rows = torch.tensor(done, device=self.device)
                texts = self.text[rows].cpu()
                self.length[rows] = 0  # fits every width
                for row, text in zip(done, texts):
                    # a copy, because a view would keep the rows of all others in memory
                    yield current.pop(row), text[: lengths[row] + 1].clone()
            if over:
                self.active.zero_()
                return
            free = [row for row in range(len(active)) if row not in current]
            fresh = dict(zip(free, waiting))
            if fresh:
                self.refill(torch.tensor(list(fresh)), list(fresh.values()), new_tokens)
                current |= fresh
            if not current:
                return
            fed = [len(fresh[row].prompt) if row in fresh else lengths[row] for row in current]
            needed = min(max(fed) + STEPS + 1, self.capacity)
            width = -(-needed // WIDTH) * WIDTH
            for _ in range(STEPS):
                self.graphs[width].replay() if width in self.graphs else self.step(width)


def first_repetitions(texts: Sequence[Tensor], starts: Sequence[int], device="cpu") -> list[int]:
    """Return the length up to which each text repeats no `GRAM` tokens of its own.

    A text ends with the first GRAM tokens in a row that stood in its answer before.

    Args:
        texts: 1-d tensors of ids.
        starts: position of the first token of each answer.
        device: where to look for repetitions.
    """
    ends = []
    for first in range(0, len(texts), 8192):
        part = texts[first : first + 8192]
        begin = torch.tensor(starts[first : first + 8192], device=device)[:, None]
        sizes = torch.tensor([len(text) for text in part], device=device)[:, None]
        ids = torch.nn.utils.rnn.pad_sequence(list(part), batch_first=True).to(device)
        if ids.shape[1] < GRAM:
            ends += sizes[:, 0].tolist()
            continue
        hashes = torch.zeros_like(ids[:, GRAM - 1 :])
        for offset in range(GRAM):  # wraps around at 64 bits
            hashes = hashes * 6364136223846793005 + ids[:, offset : offset + hashes.shape[1]] + 1
        positions = torch.arange(hashes.shape[1], device=device).expand_as(hashes)
        # Grams outside the answer equal nothing: they get numbers of their own.
        outside = (positions < begin) | (positions + GRAM > sizes)
        ordered, order = torch.where(outside, -1 - positions, hashes).sort(dim=1, stable=True)
        again = ordered[:, 1:] == ordered[:, :-1]
        never = hashes.shape[1] + GRAM
        repeats = torch.where(again, order[:, 1:] + GRAM, never)
        shortest = repeats.amin(1) if repeats.shape[1] else sizes[:, 0]
        ends += torch.minimum(shortest, sizes[:, 0]).tolist()
    return ends
