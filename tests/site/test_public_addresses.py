"""Links that leave the notebooks' folder are public addresses, which the build turns into files."""

from specdec_site.addresses import inward, outward, prefixes

BOOK, FILES = prefixes()
TEXT = (
    "[a](../book/06_proofs.md#theorem), [b](07_how_fast.ipynb#part), [c](#here),"
    " [d](../specdec_lite/theory.py) and [e](https://arxiv.org/abs/2211.17192)"
)


def test_links_that_leave_the_folder_become_public_addresses_and_back():
    public = outward(TEXT)
    assert f"[a]({BOOK}book/06_proofs.html#theorem)" in public
    assert f"[d]({FILES}specdec_lite/theory.py)" in public
    assert "[b](07_how_fast.ipynb#part), [c](#here)" in public and "../" not in public
    assert inward(public) == TEXT and outward(public) == public


def test_the_addresses_of_colab_and_of_the_repository_itself_stay():
    for text in (
        f"[Colab](https://colab.research.google.com/github/x/blob/main/notebooks/1.ipynb), [s]({BOOK})",
        f"[the guide]({FILES}CONTRIBUTING.md)",
        f"[issues]({FILES.partition('/blob/')[0]}/issues)",
    ):
        assert inward(text) == text == outward(text)
