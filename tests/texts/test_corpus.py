"""The texts of training and of measurements share no document."""

import pytest
from conftest import ROOT

from specdec_lite import corpus


@pytest.fixture(scope="module")
def trained_on():
    return corpus.training_text()


def test_held_out_documents_are_not_trained_on(trained_on):
    documents = {text for texts in trained_on.values() for text in texts}
    held_out = corpus.held_out_text()
    assert set(held_out) == set(corpus.HELD_OUT) and [len(v) for v in held_out.values()] == [
        len(v) for v in corpus.HELD_OUT.values()
    ]
    assert documents.isdisjoint(text for texts in held_out.values() for text in texts)
    lines = {line for text in documents for line in text.splitlines()}
    for domain, texts in held_out.items():  # most of their longer lines occur nowhere either
        own = {line for text in texts for line in text.splitlines() if len(line.strip()) > 40}
        assert len(own & lines) < 0.05 * len(own), domain


def test_tests_of_held_out_modules_are_left_out(trained_on):
    assert not any(
        "import graphlib\n" in text or "import fractions\n" in text and "class FractionTest" in text
        for text in trained_on["tests"]
    )
    assert {*trained_on} == {"library", "tests", "docs"}
    assert all(len(texts) > 10 for texts in trained_on.values())


def test_packages_add_no_held_out_text_and_no_tests(tmp_path, monkeypatch):
    library, package = corpus.held_out_text()["code"], tmp_path / "borrower"
    for name, text in {
        "__init__": "",
        "copied": library[0],
        "own": "x = 1\n",
        "tests/test_own": "assert True\n",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(corpus, "PACKAGES", ("borrower",))
    assert sorted(corpus.training_text(packages=True)["packages"]) == ["", "x = 1\n"]
    monkeypatch.setattr(corpus, "PACKAGES", ("borrower", "not_there"))
    with pytest.raises(ModuleNotFoundError, match="not_there"):
        corpus.training_text(packages=True)


def test_the_named_packages_are_pinned():
    pinned = {
        line.split("==")[0].lower().replace("-", "_")
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if "==" in line
    }
    assert {{"PIL": "pillow"}.get(name, name.lower()) for name in corpus.PACKAGES} <= pinned


def test_prompts_are_whole_lines_of_the_held_out_documents_spread_over_them():
    for domain, texts in corpus.held_out_text().items():

        def places(each, domain=domain, texts=texts):
            for row in corpus.make_prompts(each)[domain]:
                index = corpus.HELD_OUT[domain].index(row["source"])
                before, text, after = texts[index].partition(row["text"])
                assert 400 < len(text) < 1200 and after.startswith("\n")
                assert before.endswith("\n") or not before
                yield sum(map(len, texts[:index])) + len(before)

        many, (first, second) = [*places(40)], places(2)
        assert len(many) == 40 and many == sorted({*many})
        assert many[8] <= first <= many[11] and many[28] <= second <= many[31]
