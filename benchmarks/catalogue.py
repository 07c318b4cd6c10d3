"""Name every experiment and the module that defines it; a module is imported when it is needed."""

from importlib import import_module

from .experiment import Experiment

EXPERIMENTS = {
    "speed": "decoding:Speed",
    "speed-smollm2": "decoding:SpeedSmolLM2",
    "book-models": "models:BookModels",
    "pass-times": "memory:PassTimes",
    "draft-lengths": "draft_lengths:DraftLengths",
    "rule-drift": "rule_drift:RuleDrift",
    "block-verification-gain": "block_gain:BlockGain",
    "scoreboard-counts": "scoreboard_counts:ScoreboardCounts",
    "scoreboard-counts-smollm2": "scoreboard_counts:ScoreboardCounts",
    "humaneval-counts": "scoreboard_counts:ScoreboardCounts",
    "humaneval-counts-smollm2": "scoreboard_counts:ScoreboardCounts",
    "scoreboard-clocks": "scoreboard_clocks:ScoreboardClocks",
    "scoreboard-clocks-smollm2": "scoreboard_clocks:ScoreboardClocks",
    "formats-smollm2": "formats_smollm2:FormatsSmolLM2",
    "batch-speed": "serving:BatchSpeed",
    "cascade-speed": "stages:CascadeSpeed",
    "self-draft-speed": "self_drafts:SelfDrafts",
    "sparse-cache-speed": "self_drafts:SparseCacheSpeed",
    "proposal-times": "drafting:ProposalTimes",
    "version-speed": "versions:VersionSpeed",
    "busy-machine": "busy_machine:BusyMachine",
    "engines": "engines:Engines",
    "live-page": "live:LivePage",
    "live-smollm2": "live:LiveSmolLM2",
    "page-sizes": "page_sizes:PageSizes",
    "early-exit-acceptance": "self_drafts:SelfDrafts",
    "layer-skip-search": "self_drafts:LayerSkipSearch",
    "quantized-draft-acceptance": "self_drafts:SelfDrafts",
    "first-token-acceptance": "openings:FirstTokenAcceptance",
    "model-free-tokens": "lookup:ModelFreeTokens",
    "jacobi-and-stopping": "stopping:JacobiAndStopping",
    "token-trees": "trees:TokenTrees",
    "eagle-ablations": "eagle:EagleAblations",
    "eagle-norms": "eagle_norms:EagleNorms",
    "eagle-smollm2": "eagle_smollm2:EagleSmolLM2",
    "heads-by-kind-smollm2": "heads_by_kind:HeadsByKind",
    "heads-at-equal-bytes": "heads:HeadsAtEqualBytes",
    "parallel-heads-smollm2": "heads_smollm2:ParallelHeadsSmolLM2",
    "draft-recall": "recall:DraftRecall",
    "training-losses": "losses:TrainingLosses",
    "online-learning": "online:OnlineLearning",
    "draft-ageing": "ageing:DraftAgeing",
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
