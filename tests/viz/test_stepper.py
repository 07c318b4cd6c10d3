"""The round stepper: the numbers of its recording and its moments."""

from javascript import formula

from specdec_book.viz.interactives import Stepper

RUN = Stepper.load()


def moments(rounds: list[dict]) -> list[dict]:
    return formula("stepper", "moments", rounds)


def test_the_recorded_uniforms_decide_the_rounds():
    for record in RUN.rounds:
        for i, draft in enumerate(record["drafts"]):
            assert (draft["tested"] is None) == (i > record["accepted"])
            if draft["tested"] is not None:
                assert (draft["tested"] < draft["p"] / draft["q"]) == (i < record["accepted"])


def test_the_run_contains_the_answer_to_the_task():
    rounds = RUN.rounds
    full = [i for i, each in enumerate(rounds[:-1]) if each["accepted"] == len(each["drafts"])]
    assert full and rounds[full[0] + 1]["draft_cache"] == rounds[full[0] + 1]["context"] - 2
    assert 30 <= len(moments(rounds)) <= 50, "about forty moments"


def test_every_round_has_all_its_moments_with_the_lengths_of_both_caches():
    """The draft was never fed its last token; both caches are cut to what was accepted."""
    shown = moments(RUN.rounds)
    for at, record in enumerate(RUN.rounds):
        mine = [moment for moment in shown if moment["round"] == at]
        count, accepted = len(record["drafts"]), record["accepted"]
        tested = sum(draft["tested"] is not None for draft in record["drafts"])
        kinds = [*["draft"] * count, "verify", *["test"] * tested, "token", "cut"]
        assert [moment["kind"] for moment in mine] == kinds
        cut, before = mine[-1], record["context"]
        assert mine[count]["target"] == before + count and cut["target"] == before + accepted
        assert [m["draft"] for m in mine[:count]] == [before + i for i in range(count)]
        assert cut["target"] - cut["draft"] == (accepted == count)
        for following in RUN.rounds[at + 1 : at + 2]:
            assert following["context"] == before + accepted + 1
            assert following["draft_cache"] == cut["draft"]
