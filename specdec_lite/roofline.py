"""The roofline of a forward pass: bytes to read, operations to do, and which of the two takes
longer.

What lives here: closed forms, pure functions of numbers. What does not: measured seconds
(`timing`). The model: every weight is read once a pass and serves every token of it; reading and
arithmetic overlap, so a pass takes as long as the slower of the two. Left out: the arithmetic of
attention, activations, launch overheads. Source: Williams, Waterman and Patterson 2009, applied to
decoding.
"""


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name}={value}: must be positive")


def pass_bytes(
    parameters: float, bytes_per_weight: float, batch: int = 1, cache_bytes: float = 0.0
) -> float:
    """Bytes that one pass reads: all weights once, and each sequence's key/value cache once.

    cache_bytes: size of one sequence's cache. Tokens per pass do not appear: that is what
    speculation lives on.
    """
    _positive(parameters=parameters, bytes_per_weight=bytes_per_weight, batch=batch)
    if cache_bytes < 0:
        raise ValueError(f"cache_bytes={cache_bytes}: must not be negative")
    return parameters * bytes_per_weight + batch * cache_bytes


def pass_operations(parameters: float, tokens: int = 1, batch: int = 1) -> float:
    """Operations of one pass: a multiplication and an addition per weight, for each of tokens ×
    batch positions.
    """
    _positive(parameters=parameters, tokens=tokens, batch=batch)
    return 2.0 * parameters * tokens * batch


def arithmetic_intensity(bytes_per_weight: float, tokens: int = 1, batch: int = 1) -> float:
    """Operations per byte of weights read: 2 · tokens · batch / bytes_per_weight, whatever the
    model's size.
    """
    _positive(bytes_per_weight=bytes_per_weight, tokens=tokens, batch=batch)
    return 2.0 * tokens * batch / bytes_per_weight


def pass_seconds(
    parameters: float,
    bytes_per_weight: float,
    bandwidth: float,
    throughput: float,
    tokens: int = 1,
    batch: int = 1,
    cache_bytes: float = 0.0,
) -> tuple[float, float]:
    """(reading, computing) seconds of one pass; the pass takes the larger.

    bandwidth: bytes per second. throughput: operations per second.
    """
    _positive(bandwidth=bandwidth, throughput=throughput)
    return (
        pass_bytes(parameters, bytes_per_weight, batch, cache_bytes) / bandwidth,
        pass_operations(parameters, tokens, batch) / throughput,
    )


def ridge_tokens(bytes_per_weight: float, bandwidth: float, throughput: float) -> float:
    """Positions per pass (tokens × batch) at which computing the weights' work takes as long as
    reading them.
    """
    _positive(bytes_per_weight=bytes_per_weight, bandwidth=bandwidth, throughput=throughput)
    return throughput / bandwidth * bytes_per_weight / 2.0
