"""The table of the experiment with busy programs on the page of limits."""

from docutils import nodes
from specdec_site.recorded_tables import busy_machine

from specdec_book import recordings


def row(model: str, setting: str, load: str, seconds: list[float], threads: int) -> dict:
    return {
        "model": model,
        "setting": setting,
        "load": load,
        "seconds": seconds,
        "threads": threads,
        "tokens": 100,
    }


def test_the_page_shows_medians_of_all_turns():
    one = "bounded spin, one thread"
    data = {
        "settings": {"torch's default": {}, one: {}},
        "programs": 3,
        "cores": 2,
        "load_averages": {"quiet 1": [0.1, 0, 0], "busy 1": [2, 0, 0], "quiet 2": [0.3, 0, 0]},
        "rows": [
            row("pair", one, "quiet", [2.0], 1),
            row("pair", one, "busy", [4.0], 1),
            row("pair", "torch's default", "quiet", [1.0, 2.0], 2),
            row("pair", "torch's default", "busy", [20.0], 2),
            row("pair", "torch's default", "quiet", [4.0], 2),
        ],
    }
    recording = recordings.Recording("busy-machine/m", "w", "2026-01-31", "c", "m", {}, data)
    table, source = busy_machine(recording)
    cells = [
        [entry.astext() for entry in line.findall(nodes.entry)] for line in table.findall(nodes.row)
    ]
    assert cells[0][-1] == "3 busy programs, tokens/s"
    assert cells[1][1:] == ["torch's default", "2", "50.0 (25.0 to 100.0)", "5.0"]
    assert cells[2][1:] == [one, "1", "50.0", "25.0"]
    assert "at most 0.3" in source.astext() and "2 cores" in source.astext()
