"""Pages quote the recorded numbers of the book's models."""

import pytest

from specdec_book import recordings
from specdec_book.recordings import models as quoted


def test_pages_quote_the_recorded_numbers():
    recording = recordings.load("book-models").data
    for row in recording["passes"]:
        quote = quoted.passes(row["model"], row["dtype"])
        assert quote.seconds == {int(k): t[1] for k, t in row["seconds"].items()}
        assert all(low <= middle <= high for low, middle, high in row["seconds"].values())
        read = row["weight_bytes"] + row["cache_bytes"]
        assert quote.reading == pytest.approx(
            read / recording["profile"]["bandwidth"] / quote.seconds[1]
        )
        assert quote.growth(1) == 1


def test_an_error_lists_the_recorded_settings():
    with pytest.raises(ValueError, match="smollm2 float32"):
        quoted.passes("smollm2", "float16")
