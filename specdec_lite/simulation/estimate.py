"""Predict the cost of a round from model sizes and datasheets.

A pass takes the time of its reading, of its arithmetic (`roofline`) or of its layers' shortest
operations, whichever is longest. All sequences of a batch draft and verify the same number of
tokens. The result is a best case: real passes reach 60 to 80 percent of a datasheet. `diagnosis`
measures instead.
"""

from dataclasses import dataclass

from specdec_lite import checks, theory


def expected_experts(experts: int, chosen: int, positions: int) -> float:
    """Return the expected number of distinct experts that a pass needs per layer.

    The formula is E · (1 − (1 − k/E)^n). It assumes that positions choose independently and
    uniformly. Neighboring positions of a text share experts, so real passes need fewer.
    """
    checks.whole("experts", experts, 1)
    checks.whole("chosen", chosen, 1, experts)
    checks.whole("positions", positions, 1)
    return experts * (1 - (1 - chosen / experts) ** positions)


@dataclass(frozen=True, slots=True)
class Network:
    """Sizes of a model.

    Attributes:
        parameters: number of weights that every pass reads: all except the experts'.
        bytes_per_weight: bytes of a weight, 2 in bfloat16.
        cache_bytes: bytes of keys and values per token of context.
        experts: experts per layer; 1 for a dense model.
        chosen: experts that a token uses per layer; 1 for a dense model.
        expert_parameters: weights of one expert in all layers together; 0 for a dense model.
        layers: number of layers, which run one after the other.
    """

    parameters: float
    bytes_per_weight: float = 2.0
    cache_bytes: float = 0.0
    experts: int = 1
    chosen: int = 1
    expert_parameters: float = 0.0
    layers: int = 0

    def read(self, batch: int, tokens: int, context: float) -> float:
        """Return the bytes that a pass reads."""
        distinct = expected_experts(self.experts, self.chosen, batch * tokens)
        weights = self.parameters + distinct * self.expert_parameters
        return weights * self.bytes_per_weight + batch * context * self.cache_bytes

    def operations(self, batch: int, tokens: int) -> float:
        """Return the operations of a pass: two for every weight that a position uses."""
        return 2 * (self.parameters + self.chosen * self.expert_parameters) * batch * tokens


@dataclass(frozen=True, slots=True)
class Hardware:
    """Speeds of a device.

    Attributes:
        bandwidth: bytes per second.
        throughput: operations per second.
        per_layer: the shortest seconds of a layer, however narrow: about ten operations, each with
            a shortest time of its own.
    """

    bandwidth: float
    throughput: float
    per_layer: float = 0.0

    def seconds(
        self, network: Network, batch: int = 1, tokens: int = 1, context: float = 0
    ) -> float:
        """Return the shortest possible seconds of a pass."""
        reading = network.read(batch, tokens, context) / self.bandwidth
        computing = network.operations(batch, tokens) / self.throughput
        return max(reading, computing, network.layers * self.per_layer)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Costs of a round and of plain decoding.

    A plain token costs one pass and nothing else here, so o and o₀ of the formula
    speedup = (1 + o₀)·τ ÷ (v + γc + o) are both 0.

    Attributes:
        draft: seconds of all drafting of the round.
        verify: seconds of the target's pass over γ + 1 tokens per sequence.
        plain: seconds of a plain pass.
        tokens: expected tokens per sequence that the round emits.
        batch: sequences decoded together.
    """

    draft: float
    verify: float
    plain: float
    tokens: float
    batch: int = 1

    @property
    def round(self) -> float:
        """Seconds of the round."""
        return self.draft + self.verify

    @property
    def break_even(self) -> float:
        """Tokens per sequence that the round must emit to be as fast as plain decoding."""
        return self.round / self.plain

    @property
    def speedup(self) -> float:
        """Expected speed relative to plain decoding."""
        return self.tokens * self.plain / self.round

    def price(self, per_hour: float) -> tuple[float, float]:
        """Return the price of a million tokens, decoded plainly and with drafts."""
        million = per_hour / 3600 * 1e6 / self.batch
        return million * self.plain, million * self.round / self.tokens


def estimate(
    target: Network,
    draft: Network,
    hardware: Hardware,
    alpha: float,
    gamma: int,
    batch: int = 1,
    context: float = 0.0,
) -> Estimate:
    """Predict a round of γ drafted tokens per sequence."""
    checks.whole("batch", batch, 1)
    checks.number("context", context)
    tokens = float(theory.expected_tokens(alpha, gamma))
    draft_pass = hardware.seconds(draft, batch, 1, context) if draft.parameters else 0.0
    return Estimate(
        draft=gamma * draft_pass,
        verify=hardware.seconds(target, batch, gamma + 1, context),
        plain=hardware.seconds(target, batch, 1, context),
        tokens=tokens,
        batch=batch,
    )
