"""A source of chance that keeps the numbers it drew, so that a test can use them again."""

from specdec_lite.sampling import SeededRng


class RecordingRng(SeededRng):
    """A `SeededRng` that keeps every uniform it used, in order, in `uniforms`."""

    def __init__(self, seed: int | None = None):
        super().__init__(seed)
        self.uniforms: list[float] = []

    def uniform(self) -> float:
        """Return a uniform number in [0, 1), and keep it."""
        self.uniforms.append(super().uniform())
        return self.uniforms[-1]
