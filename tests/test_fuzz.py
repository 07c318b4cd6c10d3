"""The fuzzer draws every kind of case, finds what is broken, and its commands repeat what it found."""

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import asdict

import fuzz
import pytest
import torch
from broken_drafts import Altered
from conftest import ROOT
from models_zoo import perturbed

from specdec_lite.drafters import ModelDrafter
from specdec_lite.proposal import Proposal


def kinds(spec):
    """Yield every name in a drafter's description."""
    parts = [spec] if isinstance(spec, str) else spec
    for part in parts:
        yield from [part] if isinstance(part, str) else kinds(part or ())


def test_cases_reach_everything_and_are_what_their_command_says():
    cases = [fuzz.draw_case(seed) for seed in range(3000)]
    names = Counter(name for case in cases for name in kinds(case.drafter))
    assert names.keys() == {*fuzz.DRAFTERS, *fuzz.SEEDED, *fuzz.COMPOSITES}
    newest = [names[name] for name in fuzz.NEWEST]
    others = [names[name] for name in fuzz.DRAFTERS if name not in fuzz.NEWEST]
    assert min(newest) > sum(others) / len(others)
    assert {case.rule for case in cases} == {None, *fuzz.LOSSLESS}
    assert {case.kind for case in cases} == {*fuzz.KINDS}
    assert {name for case in cases for name, *_ in case.processors} == {
        "RepetitionPenalty",
        "PresencePenalty",
        "MinP",
        "ForbiddenWords",
        "alternating",
    }
    for seed, case in enumerate(cases[:100]):
        assert fuzz.draw_case(seed) == case
        words = shlex.split(case.command)
        assert json.loads(words[-1]) == json.loads(json.dumps(asdict(case)))


def test_some_cases_differ_in_nothing(capsys):
    assert fuzz.main(["--seed", "1", "--cases", "12"]) == 0
    line = capsys.readouterr().out
    counts = {name: int(count) for name, count in re.findall(r"([a-z][a-z ]*): (\d+)", line)}
    assert sum(counts.values()) == 12 and counts.get("refused", 0) < 6, line


@pytest.mark.slow
def test_two_minutes_find_no_difference():
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "2"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no difference from seed" in run.stdout


class WrongRows(Altered, ModelDrafter):
    """Draw from the draft's rows, and report uniform ones."""

    def altered(self, session, proposal, context):
        if proposal.probs is None:
            return proposal
        rows = torch.full_like(proposal.probs, 1 / context.vocab_size)
        return Proposal(proposal.tree, rows)


class Writer(ModelDrafter):
    """Change the target's keys while drafting."""

    def start(self, context):
        session = super().start(context)
        honest = session.propose

        def propose(context):
            context.cache.keys(0)[...] += 1
            return honest(context)

        session.propose = propose
        return session


@pytest.mark.parametrize(
    ("broken", "kind"), [(WrongRows, "distribution"), (Writer, "text")], ids=["rows", "cache"]
)
def test_a_broken_drafter_is_caught_and_its_command_repeats_it(broken, kind, monkeypatch, capsys):
    makers = {"draft model": lambda target: broken(perturbed(target, 0.3), 3)}
    monkeypatch.setattr(fuzz, "DRAFTERS", makers)
    monkeypatch.setattr(fuzz, "SEEDED", {})
    monkeypatch.setattr(fuzz, "KINDS", {kind: 1})
    assert fuzz.main(["--seed", "1", "--cases", "60"]) == 1
    output = capsys.readouterr().out
    (command,) = re.findall(r"^python -m tests\.fuzz --case .*$", output, re.M)
    assert re.search(r"^seed \d+;", output, re.M)
    again = shlex.split(command)[3:]
    assert fuzz.main(again) == 1
    monkeypatch.setitem(makers, "draft model", lambda target: ModelDrafter(perturbed(target), 3))
    assert fuzz.main(again) == 0
