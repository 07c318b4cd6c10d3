"""Arguments of the closed forms as float64 arrays, checked."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from specdec_lite.checks import SUM_TOLERANCE


def distributions(p: ArrayLike | Tensor, q: ArrayLike | Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return p and q as float64 arrays, after checking that every row is a distribution.

    Shapes: p [..., V], q [..., V].
    """
    rows = {"p": array("p", p), "q": array("q", q)}
    for name, x in rows.items():
        if x.ndim == 0 or 0 in x.shape:
            raise ValueError(f"{name} must be rows over the vocabulary, got shape {tuple(x.shape)}")
        sums = x.sum(-1)
        low, least, most = float(x.min()), float(sums.min()), float(sums.max())
        if not (low >= 0 and least >= 1 - SUM_TOLERANCE and most <= 1 + SUM_TOLERANCE):
            raise ValueError(
                f"{name} must be non-negative and sum to 1 along its last axis; "
                f"its smallest entry is {low}, its sums lie in [{least}, {most}]"
            )
    if rows["p"].shape[-1] != rows["q"].shape[-1]:
        raise ValueError(
            f"p and q must share one vocabulary, got {rows['p'].shape[-1]} and"
            f" {rows['q'].shape[-1]} entries"
        )
    return rows["p"], rows["q"]


def array(name: str, x: ArrayLike | Tensor) -> np.ndarray:
    """Return a value as a float64 array."""
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        x = (x if x.is_complex() else x.double()).numpy()  # NumPy has no bfloat16
    values = np.asarray(x)
    try:
        if values.dtype.kind in "USc":
            raise TypeError("text and complex numbers are not real numbers")
        return values.astype(float)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name}={x!r}: must be a number or an array of numbers ({error})"
        ) from None


def number(name: str, x) -> float:
    """Return a value as a float."""
    values = array(name, x)
    if values.ndim:
        raise ValueError(f"{name} must be one number, got shape {values.shape}")
    return float(values)


def within(name: str, x: ArrayLike, low: float, high: float) -> np.ndarray:
    """Return a value as a float64 array, after checking its range."""
    values = array(name, x)
    if not np.all((values >= low) & (values <= high)):
        allowed = f"in [{low}, {high}]" if np.isfinite(high) else f"at least {low}"
        raise ValueError(f"{name} must be {allowed}, got {values}")
    return values


def rate(alpha: ArrayLike) -> np.ndarray:
    """Return an acceptance rate as a float64 array in [0, 1]."""
    return within("alpha", alpha, 0, 1)


def draft_length(gamma: ArrayLike, name: str = "gamma") -> np.ndarray:
    """Return a draft length as a float64 array of whole numbers ≥ 1."""
    values = array(name, gamma)
    if not np.all((values >= 1) & (values == np.floor(values)) & np.isfinite(values)):
        raise ValueError(f"{name} must be a whole number, at least 1, got {values}")
    return values


def plain(x: np.ndarray) -> float | np.ndarray:
    """Return an array without axes as a float, any other array as it is."""
    return float(x) if np.ndim(x) == 0 else x


def bisect(rising: Callable[[float], float], value: float) -> float:
    """Return where a function that rises on [0, 1] takes a value, to 1e-15."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return (low + high) / 2
