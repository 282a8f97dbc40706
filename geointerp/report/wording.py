"""Names and numbers as the report prints them: shortened, escaped for plotly, rounded without lying."""

import math
import unicodedata
from collections.abc import Sequence

AXIS_LETTERS = 18  # of a name on an axis
SENTENCE_LETTERS = 40  # of a name in a sentence
HOVER_LINE = 60  # letters of a line in a hover label, which plotly does not wrap
HOVER_BUDGET = 40_000  # letters of whole names in the hover labels of one figure; beyond it they are shortened

_RIGHT_TO_LEFT = {"R", "AL", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI"}


def number(value: float) -> str:
    """A number for people: three decimals near 1, three digits elsewhere, and never 1.000 for what is not 1.

    NaN is 'undefined'. The minus is the typographic one.
    """
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    size = abs(value)
    if size == 0:
        text = "0"
    elif size < 5e-4:
        text = f"{size:.1e}".replace("e-0", "e-")
        text = text.replace("e-", "e\u2212")
    elif size < 10:
        decimals = 3
        while decimals < 6 and size < 1 and float(f"{size:.{decimals}f}") == 1.0:
            decimals += 1
        text = f"{size:.{decimals}f}"
    elif size < 1000:
        text = f"{size:.1f}"
    else:
        text = f"{size:,.0f}"
    return f"\u2212{text}" if value < 0 else text


def joined(items: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def clean(name: str) -> str:
    """A name that any encoder takes: half a surrogate pair becomes the replacement character."""
    return name.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shortened(name: str, letters: int) -> str:
    """The name, or its start and an ellipsis, ``letters`` characters in all."""
    name = clean(name)
    return name if len(name) <= letters else name[: letters - 1] + "…"


def isolated(name: str) -> str:
    """A name whose writing direction cannot turn the text around it (Unicode's first-strong isolate)."""
    if any(unicodedata.bidirectional(letter) in _RIGHT_TO_LEFT for letter in name):
        return f"\u2068{name}\u2069"
    return name


def in_sentence(name: str) -> str:
    """A name inside running text; the template escapes it for HTML."""
    return isolated(shortened(name, SENTENCE_LETTERS))


def plotly_text(name: str, letters: int | None = None) -> str:
    """A name that plotly draws letter for letter: without its HTML subset, its %{} templates and its $TeX$.

    Args:
        name: any string.
        letters: shorten to this many characters; None keeps all of them.
    """
    name = isolated(clean(name) if letters is None else shortened(name, letters))
    for letter, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("%", "&#37;"), ("$", "&#36;")):
        name = name.replace(letter, entity)
    return name


def hover_text(name: str) -> str:
    """The whole name for a hover label, broken into lines."""
    name = clean(name)
    lines = [name[i : i + HOVER_LINE] for i in range(0, len(name), HOVER_LINE)]
    return "<br>".join(plotly_text(line) for line in lines)


def hover_names(names: Sequence[str], repeats: int = 1) -> list[str]:
    """Names for hover labels: whole, unless ``repeats`` copies of them all would weigh the page down."""
    if sum(map(len, names)) * repeats <= HOVER_BUDGET:
        return [hover_text(name) for name in names]
    return [plotly_text(name, HOVER_LINE) for name in names]
