"""The names of `specdec_lite.timing` and where each is defined; `__init__` loads them on first use."""

from specdec_lite.measure.clocks import Spread, interleaved, samples, spreads
from specdec_lite.measure.machine import cache_bytes, machine_profile, machine_state, read_bandwidth
from specdec_lite.measure.stamps import machine_name
from specdec_lite.measure.timing import (
    Costs,
    RoundCosts,
    measure_costs,
    pass_job,
    pass_jobs,
    pass_times,
    round_costs,
)

__all__ = [
    "Costs",
    "RoundCosts",
    "Spread",
    "cache_bytes",
    "interleaved",
    "machine_name",
    "machine_profile",
    "machine_state",
    "measure_costs",
    "pass_job",
    "pass_jobs",
    "pass_times",
    "read_bandwidth",
    "round_costs",
    "samples",
    "spreads",
]
