"""What this machine's processor can do."""

import platform
from functools import cache
from pathlib import Path

import torch

X86 = ("x86_64", "AMD64")


@cache
def processor() -> str:
    """Return the processor's kind and, where the system lists them, its instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    features = [line for line in lines if line.lower().startswith(("flags", "features"))]
    return " ".join([platform.machine(), platform.processor(), *features[:1]])


def computes_bfloat16() -> bool:
    """Return whether this processor has instructions for bfloat16, which the environment allows."""
    here = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return here and (platform.machine() not in X86 or torch.cpu._is_avx512_bf16_supported())
