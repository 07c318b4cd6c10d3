"""The roofline of a forward pass: bytes to read, operations to do, and which of them takes longer.

These are closed forms; `measure.timing` measures seconds. Every weight is read once per pass and
serves every token of it. Reading and arithmetic overlap, so a pass takes as long as the slower of
the two. The arithmetic of attention, the activations and launch overheads are left out. Source:
Williams, Waterman and Patterson 2009, applied to decoding.
"""


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name}={value}: must be positive")


def arithmetic_intensity(bytes_per_weight: float, tokens: int = 1, batch: int = 1) -> float:
    """Return the operations per byte of weights read: 2 · tokens · batch / bytes_per_weight.

    It does not depend on the size of the model.

    Args:
        bytes_per_weight: 2 for bfloat16, 4 for float32.
        tokens: positions per sequence.
        batch: number of sequences.

    Raises:
        ValueError: an argument is not positive.
    """
    _check_positive(bytes_per_weight=bytes_per_weight, tokens=tokens, batch=batch)
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
    """Return (reading, computing), the seconds of one pass; the pass takes the larger of them.

    It reads all weights once, and every sequence's cache once. The number of tokens does not appear
    in reading, which is why speculation can pay. It computes a multiplication and an addition per
    weight and position.

    Args:
        parameters: number of weights.
        bytes_per_weight: 2 for bfloat16, 4 for float32.
        bandwidth: of the memory, in bytes per second.
        throughput: of the processor, in operations per second.
        tokens: positions per sequence.
        batch: number of sequences.
        cache_bytes: size of one sequence's key/value cache, ≥ 0.

    Raises:
        ValueError: an argument is outside its range.
    """
    _check_positive(parameters=parameters, bytes_per_weight=bytes_per_weight)
    _check_positive(bandwidth=bandwidth, throughput=throughput, tokens=tokens, batch=batch)
    if cache_bytes < 0:
        raise ValueError(f"cache_bytes={cache_bytes}: must not be negative")
    read = parameters * bytes_per_weight + batch * cache_bytes
    return read / bandwidth, 2.0 * parameters * tokens * batch / throughput


def ridge_tokens(bytes_per_weight: float, bandwidth: float, throughput: float) -> float:
    """Return the positions per pass at which computing takes as long as reading the weights.

    Args:
        bytes_per_weight: 2 for bfloat16, 4 for float32.
        bandwidth: of the memory, in bytes per second.
        throughput: of the processor, in operations per second.

    Returns:
        tokens × batch.

    Raises:
        ValueError: an argument is not positive.
    """
    _check_positive(bytes_per_weight=bytes_per_weight, bandwidth=bandwidth, throughput=throughput)
    return throughput / bandwidth * bytes_per_weight / 2.0
