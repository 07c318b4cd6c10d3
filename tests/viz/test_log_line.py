"""The reader of log lines: it reads what is typed, and offers what follows to the calculator."""

import pytest
from javascript import formula
from mounting import says

from specdec_book.viz import LogLine
from specdec_lite.diagnosis.metrics import explain


@pytest.mark.browser
def test_it_reads_what_is_typed(used):
    page = used(LogLine())
    says(page, ".sdl-summary", "Paste a line")
    page.locator("textarea").fill("accept len: 2.54, accept rate: 0.39")
    says(page, "details dl", "SGLang")
    says(page, "dl", "2.54")
    page.locator("textarea").fill("nothing")
    says(page, ".sdl-summary", "none of the known formats")


@pytest.mark.browser
def test_gamma_completes_a_line_that_lacks_it(mounted):
    page = mounted(LogLine(text="accept len: 2.54"), 1000)
    says(page, ".sdl-notes", "give gamma=")
    page.get_by_label("γ").fill("4")
    says(page, "dl", f"{explain('accept len: 2.54', 4).alpha:.2f}")


def test_its_examples_are_readable():
    for example in formula("log_line", "presets"):
        assert explain(example["text"], example.get("gamma")).alpha is not None
