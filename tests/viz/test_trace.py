"""The token trace shows every drafted token once, with its verdict, and not by color alone."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import torch
from bs4 import BeautifulSoup
from chance import RecordingRng
from letters import Letters as Alphabet, tiny

from specdec_book.viz.interactive import STATIC
from specdec_book.viz.trace import DISCARDED, KINDS, Piece, trace as trace_of, verified_nodes
from specdec_lite.decoding import Output, stream
from specdec_lite.drafters import ModelDrafter
from specdec_lite.proposal import Step
from specdec_lite.tree import TokenTree


class Letters:
    """A tokenizer with one character per token."""

    def decode(self, ids):
        return "".join(map(chr, ids))


def trace(steps, tokenizer, prompt=""):
    """Return the trace of an output with these steps."""
    return trace_of(Output(torch.tensor([]), steps), tokenizer, prompt)


def step(tree: TokenTree, path=(), token="!", kind="recovered", tests=()) -> Step:
    token = None if token is None else ord(token)
    emitted = (*tree.tokens[list(path)].tolist(), *([] if token is None else [token]))
    count = len(tree)
    return Step(
        tokens=emitted,
        tree=tree,
        path=tuple(path),
        token=token,
        kind=kind,
        tests=tuple(tests),
        p=(0.5,) * count,
        q=(0.5,) * count,
        draw_counts=(1,) * count,
        draft_passes=count,
    )


def chain(text: str) -> TokenTree:
    return TokenTree.chain([ord(letter) for letter in text])


def kinds(row) -> list[tuple[str, str]]:
    return [(piece.kind, piece.text) for piece in row]


REJECTED_SECOND = step(chain("abcd"), path=(0,), token="x", tests=(1, 1))
ALL_ACCEPTED = step(chain("ab"), path=(0, 1), token="y", kind="bonus", tests=(1, 1))
STOPPED = step(chain("abc"), path=(0, 1), token=None, kind=None, tests=(1, 1))
PLAIN = step(TokenTree((), ()), token="z", kind="sampled")


def test_pieces_of_a_rejection():
    assert kinds(trace([REJECTED_SECOND], Letters()).passes[0]) == [
        ("accepted", "a"),
        ("rejected", "b"),
        ("unused", "c"),
        ("unused", "d"),
        ("recovered", "x"),
    ]


def test_pieces_of_a_bonus_a_stop_token_and_a_plain_step():
    rows = trace([ALL_ACCEPTED, STOPPED, PLAIN], Letters()).passes
    assert kinds(rows[0]) == [("accepted", "a"), ("accepted", "b"), ("bonus", "y")]
    assert kinds(rows[1]) == [("accepted", "a"), ("accepted", "b"), ("unused", "c")]
    assert kinds(rows[2]) == [("sampled", "z")]


def test_earlier_siblings_are_rejected_and_later_ones_unused():
    tree = TokenTree([ord(letter) for letter in "abcde"], [-1, -1, -1, 1, 1])
    row = trace([step(tree, path=(1,), token="x", tests=(2, 2))], Letters()).passes[0]
    assert kinds(row) == [
        ("accepted", "b"),
        ("rejected", "a"),
        ("rejected", "d"),
        ("rejected", "e"),
        ("unused", "c"),
        ("recovered", "x"),
    ]


def test_every_tested_draft_shows_its_uniform():
    """In a sampled run, a drawn token is accepted exactly if u < p/q."""
    target, draft = tiny(0), tiny(0, noise=0.15)
    rng = RecordingRng(3)
    run = list(stream(target, [1, 2, 3], ModelDrafter(draft, 3), 60, 1.0, rng=rng))
    used = [coin for each in run for coin in each.coins]
    assert len(used) == sum(each.tested for each in run) and set(used) < set(rng.uniforms)
    pieces = [piece for row in trace(run, Alphabet()).passes for piece in row]
    tested = [piece for piece in pieces if piece.kind in ("accepted", "rejected")]
    assert {piece.kind for piece in tested} == {"accepted", "rejected"}
    for piece in tested:
        assert (piece.u < piece.p / piece.q) == (piece.kind == "accepted")
        assert f"u = {piece.u:.2g}" in piece.description(1)
    assert all(piece.u is None for piece in pieces if piece.kind not in ("accepted", "rejected"))
    greedy = list(stream(target, [1, 2, 3], ModelDrafter(draft, 3), 20))
    assert not any(each.coins for each in greedy)


def test_each_test_of_a_tree_has_its_node():
    tree = TokenTree([ord(letter) for letter in "abcde"], [-1, -1, -1, 1, 1])
    shown = replace(step(tree, path=(1,), token="x", tests=(2, 2)), coins=(0.9, 0.1, 0.8, 0.7))
    assert verified_nodes(shown) == (0, 1, 3, 4)
    row = trace([shown], Letters()).passes[0]
    assert {piece.text: piece.u for piece in row if piece.u} == dict(a=0.9, b=0.1, d=0.8, e=0.7)
    assert verified_nodes(replace(shown, draw_counts=(2, 1, 1, 1, 1))) == ()


def test_pieces_that_are_not_discarded_spell_the_output():
    steps = [REJECTED_SECOND, ALL_ACCEPTED, STOPPED]
    shown = trace(steps, Letters())
    kept = "".join(p.text for row in shown.passes for p in row if p.kind not in DISCARDED)
    assert kept == Letters().decode([t for s in steps for t in s.tokens])
    assert shown.count("accepted") == shown.stats.accepted
    assert sum(len(row) for row in shown.passes) == sum(
        len(s.tree) + (s.token is not None) for s in steps
    )


def read(html: str) -> str:
    """Return the text of a screen reader; all tags must nest."""
    html = re.sub(r"<style>.*?</style>|<(?:input|br)\b[^>]*>", "", html, flags=re.S)
    ElementTree.fromstring(f"<div>{html}</div>")
    soup = BeautifulSoup(html, "html.parser")
    for quiet in soup.select("[aria-hidden=true]"):
        quiet.decompose()
    return soup.get_text()


def test_screen_reader_hears_the_kind_of_every_run():
    heard = read(trace([REJECTED_SECOND, ALL_ACCEPTED], Letters(), prompt="go")._repr_html_())
    assert "go accepted: a rejected: b unused: cd recovered: x accepted: ab bonus: y" in heard


def test_every_kind_differs_by_more_than_color():
    css = (STATIC / "interactive.css").read_text()
    looks = {}
    for kind in {*KINDS, "drafted", "own"} - {"sampled"}:
        rules = " ".join(re.findall(rf"\.sdl-{kind}(?:::before)? \{{([^}}]*)\}}", css))
        looks[kind] = (
            re.findall(r"\b(solid|double|dotted|dashed|line-through)\b", rules),
            re.findall(r'content: "([^"])";', rules),
        )
    assert len({json.dumps(look) for look in looks.values()}) == len(looks), looks


def test_markup_in_tokens_is_text():
    html = trace(
        [step(chain("<&"), path=(0, 1), token='"', kind="bonus", tests=(1, 1))],
        Letters(),
        prompt="<script>",
    )._repr_html_()
    assert "<script>" not in html
    assert '<script> accepted: <& bonus: "' in read(html)


def test_newlines_of_discarded_tokens_do_not_break_the_line():
    html = trace([step(chain("\n\n"), path=(0,), token="x", tests=(1, 1))], Letters())._repr_html_()
    assert re.search(r"⏎</span>\n</span>", html) and re.search(r"⏎</span></del>", html)


def test_long_prompt_is_cut_to_its_end():
    assert trace([PLAIN], Letters(), prompt="a" * 1000 + "end").prompt.endswith("aaaend")
    assert len(trace([PLAIN], Letters(), prompt="a" * 1000).prompt) < 500


def test_plain_decoding_has_no_switch_and_no_acceptance_counts():
    shown = trace([PLAIN], Letters())
    assert "checkbox" not in shown._repr_html_() and "accepted" not in shown.summary
    assert Piece("sampled", "z") in shown.passes[0] and 'pass 1: sampled "z"' in repr(shown)


def test_every_token_has_a_description():
    html = trace([REJECTED_SECOND, ALL_ACCEPTED], Letters())._repr_html_()
    titles = re.findall(r'<(?:ins|del|span) class="sdl-token sdl-(\w+)" title="([^"]*)">', html)
    assert [kind for kind, _ in titles] == [
        *("accepted", "rejected", "unused", "unused", "recovered"),
        *("accepted", "accepted", "bonus"),
    ]
    for i, (kind, words) in enumerate(titles):
        assert words.startswith(f"pass {1 if i < 5 else 2}: {kind}, {KINDS[kind]}")
        assert words.endswith(", p = 0.5, q = 0.5") == (kind not in ("recovered", "bonus"))
