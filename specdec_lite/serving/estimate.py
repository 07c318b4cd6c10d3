"""What a round of speculation would cost on hardware that is not at hand, from sizes and datasheets.

What lives here: closed forms for two networks of known size, a batch and a context. What does not:
anything measured (`diagnose`). A pass takes the longer of its reading and its arithmetic, and a
fixed time beside (`roofline`); every sequence of the batch drafts and verifies alike, and the best
case is meant throughout: real passes reach 60 to 80 percent of a datasheet. JSON of the presets is
in the interactive (`viz.payoff`).
"""

from dataclasses import dataclass

from specdec_lite import checks, theory


def expected_experts(experts: int, chosen: int, positions: int) -> float:
    """Distinct experts that so many positions need of a layer: E · (1 − (1 − k/E)^n).

    Args:
        experts: E ≥ 1 of a layer.
        chosen: k, 1 … E, for each position.
        positions: n ≥ 1 of the pass, all sequences together.

    Positions choose alone and uniformly here; neighbours of one text overlap, so real passes need
    fewer.
    """
    checks.whole("experts", experts, 1)
    checks.whole("chosen", chosen, 1, experts)
    checks.whole("positions", positions, 1)
    return experts * (1 - (1 - chosen / experts) ** positions)


@dataclass(frozen=True, slots=True)
class Network:
    """Sizes of a model.

    Attributes:
        parameters: read by every pass: all but the experts.
        bytes_per_weight: 2 in bfloat16.
        cache_bytes: of keys and values, a token of context.
        experts, chosen: of a layer, and how many of them a token uses; 1 and 1: a dense model.
        expert_parameters: of one expert in all layers together; 0: a dense model.
    """

    parameters: float
    bytes_per_weight: float = 2.0
    cache_bytes: float = 0.0
    experts: int = 1
    chosen: int = 1
    expert_parameters: float = 0.0

    def read(self, batch: int, tokens: int, context: float) -> float:
        """Bytes that a pass reads over `tokens` of each of `batch` sequences, behind a context."""
        distinct = expected_experts(self.experts, self.chosen, batch * tokens)
        weights = self.parameters + distinct * self.expert_parameters
        return weights * self.bytes_per_weight + batch * context * self.cache_bytes

    def operations(self, batch: int, tokens: int) -> float:
        """A multiplication and an addition for every weight that a position uses."""
        return 2 * (self.parameters + self.chosen * self.expert_parameters) * batch * tokens


@dataclass(frozen=True, slots=True)
class Hardware:
    """bandwidth: bytes/s. throughput: operations/s. fixed: seconds a pass takes beside both."""

    bandwidth: float
    throughput: float
    fixed: float = 0.0

    def seconds(
        self, network: Network, batch: int = 1, tokens: int = 1, context: float = 0
    ) -> float:
        """The least time of a pass."""
        reading = network.read(batch, tokens, context) / self.bandwidth
        return max(reading, network.operations(batch, tokens) / self.throughput) + self.fixed


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of a round and of what it replaces.

    Attributes:
        draft: all drafting of the round.
        verify: the target's pass over γ + 1 tokens of every sequence.
        plain: a plain pass.
        tokens: expected of the round, a sequence.
    """

    draft: float
    verify: float
    plain: float
    tokens: float

    @property
    def round(self) -> float:
        return self.draft + self.verify

    @property
    def break_even(self) -> float:
        """Tokens that the round must emit to cost no more than plain decoding."""
        return self.round / self.plain

    @property
    def speedup(self) -> float:
        return self.tokens * self.plain / self.round


def estimate(
    target: Network,
    draft: Network,
    hardware: Hardware,
    alpha: float,
    gamma: int,
    batch: int = 1,
    context: float = 0.0,
) -> Estimate:
    """A round of γ drafted tokens for each of `batch` sequences.

    Args:
        target, draft: sizes; a drafter without a model is a network of 0 parameters.
        hardware: on which both run.
        alpha: acceptance rate, [0, 1].
        gamma: draft length ≥ 1.
        batch: sequences decoded together, ≥ 1.
        context: tokens that stand in each cache.
    """
    checks.whole("batch", batch, 1)
    checks.number("context", context)
    tokens = theory.expected_tokens(alpha, gamma)
    pass_of_draft = hardware.seconds(draft, batch, 1, context) if draft.parameters else 0.0
    return Estimate(
        draft=gamma * pass_of_draft,
        verify=hardware.seconds(target, batch, gamma + 1, context),
        plain=hardware.seconds(target, batch, 1, context),
        tokens=tokens,
    )
