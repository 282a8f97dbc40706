"""Numbers are rounded without lying, and names come through letter for letter."""

import html

import pytest
from report.small_runs import HOSTILE

from geointerp.report.wording import clean, hover_names, in_sentence, joined, number, plotly_text, shortened


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1.000"),
        (0.9996, "0.9996"),
        (0.99999, "0.99999"),
        (0.123456, "0.123"),
        (-0.5, "\u22120.500"),
        (2.2e-5, "2.2e\u22125"),
        (-2.2e-4, "\u22122.2e\u22124"),
        (27.08, "27.1"),
        (12345.6, "12,346"),
        (float("nan"), "undefined"),
        (float("inf"), "infinite"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_joined() -> None:
    assert [joined(list("a")), joined(list("ab")), joined(list("abc"))] == ["a", "a and b", "a, b and c"]


def test_shortened_keeps_its_length() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"


@pytest.mark.parametrize("name", HOSTILE)
def test_plotly_text_is_the_name_behind_entities(name: str) -> None:
    text = plotly_text(name)
    assert html.unescape(text).strip("\u2068\u2069") == name
    assert not set(text) & set("<>%$")  # no tag, no template, no TeX


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    assert clean("a\ud83d") == "a\ufffd"
    assert clean("🦜") == "🦜"


def test_right_to_left_names_are_isolated_in_sentences() -> None:
    assert in_sentence("\u05d0\u05d1\u05d2") == "\u2068\u05d0\u05d1\u05d2\u2069"
    assert in_sentence("plain") == "plain"


def test_hover_names_are_whole_until_they_weigh_too_much() -> None:
    long = "x" * 300
    assert hover_names([long])[0].replace("<br>", "") == long
    assert max(len(line) for line in hover_names([long])[0].split("<br>")) == 60
    assert len(hover_names([long], repeats=1000)[0]) == 60
