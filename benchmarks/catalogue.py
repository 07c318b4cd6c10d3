"""Name every experiment and the module that defines it; a module is imported when it is needed."""

from importlib import import_module

from .experiment import Experiment

EXPERIMENTS = {
    "speed": "decoding:Speed",
    "book-models": "models:BookModels",
    "pass-times": "memory:PassTimes",
    "draft-lengths": "draft_lengths:DraftLengths",
    "scoreboard-counts": "scoreboard_counts:ScoreboardCounts",
    "scoreboard-counts-smollm2": "scoreboard_counts:ScoreboardCounts",
    "humaneval-counts": "scoreboard_counts:ScoreboardCounts",
    "humaneval-counts-smollm2": "scoreboard_counts:ScoreboardCounts",
    "scoreboard-clocks": "scoreboard_clocks:ScoreboardClocks",
    "scoreboard-clocks-smollm2": "scoreboard_clocks:ScoreboardClocks",
    "formats-smollm2": "formats_smollm2:FormatsSmolLM2",
    "batch-speed": "serving:BatchSpeed",
    "version-speed": "versions:VersionSpeed",
    "engines": "engines:Engines",
    "live-page": "live:LivePage",
    "live-smollm2": "live:LiveSmolLM2",
    "page-sizes": "page_sizes:PageSizes",
    "estimator": "estimator:Estimator",
    "next-words": "next_words:NextWords",
    "answers": "answers:Answers",
    "race": "race:RecordedRace",
    "rounds": "round:Rounds",
}
"""Module and class of each experiment, those with times first; a class may have several names."""


def find(name: str) -> type[Experiment]:
    """Return the class of an experiment."""
    module, _, kind = EXPERIMENTS[name].partition(":")
    return getattr(import_module(f"benchmarks.{module}"), kind).variant(name)
