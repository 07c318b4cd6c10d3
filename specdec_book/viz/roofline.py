"""The roofline explorer: the least time that one pass can take on a machine."""

import traitlets

from specdec_book.viz.interactive import Interactive

WIDTHS = (4.0, 2.0, 1.0, 0.5)


class Roofline(Interactive):
    """Sliders for a model, a batch and a machine over the roofline and the least time of a pass.

    Attributes:
        parameters: Number of weights, 1e6 … 1e12.
        bytes_per_weight: One of WIDTHS.
        bandwidth: Bytes per second, 1e9 … 1e13.
        throughput: Operations per second, 1e10 … 1e16.
        batch: Sequences in a pass, 1 … 256.
        tokens: Tokens per sequence and pass, 1 … 32.
        cache: Bytes of key/value cache per sequence, 0 … 1e11.
        machines: Measured machines for the menu: {"label", any of the numbers above} each.
    """

    module = "roofline"
    label = "Roofline explorer: time of a pass, which roof limits it, and how long the chip idles"

    parameters = traitlets.Float(70e9, min=1e6, max=1e12)
    bytes_per_weight = traitlets.Enum(WIDTHS, 2.0)
    bandwidth = traitlets.Float(2e12, min=1e9, max=1e13)
    throughput = traitlets.Float(312e12, min=1e10, max=1e16)
    batch = traitlets.Int(1, min=1, max=256)
    tokens = traitlets.Int(1, min=1, max=32)
    cache = traitlets.Float(0.0, min=0, max=1e11)
    machines = traitlets.List(traitlets.Dict())
