"""Checks shared by every settings class, and strict reading of settings from JSON. Imports no torch."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from geointerp.errors import ConfigError

Settings = TypeVar("Settings")


def check_integer(name: str, value: object, least: int) -> None:
    """Raise ConfigError unless ``value`` is an int (not a bool) of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name}={value!r} is not a whole number of at least {least}; give one")


def check_number(name: str, value: object, least: int, *, above: bool = False) -> None:
    """Raise ConfigError unless ``value`` is a finite number ``>= least`` (``> least`` with ``above``)."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or value < least or (above and value == least):  # pyright: ignore[reportOperatorIssue] - fits implies a number
        raise ConfigError(
            f"{name}={value!r} is not a finite number {'above' if above else 'of at least'} {least:g}; give one"
        )


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise ConfigError, with the nearest choice, unless ``value`` is one of ``choices`` and of its type."""
    if any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices):
        return
    listed = ", ".join("null" if c is None else repr(c) for c in choices)
    near = difflib.get_close_matches(str(value), [str(c) for c in choices if c is not None], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if None in choices and str(value).lower() in ("none", "null", ""):
        hint = "; no norm is written null in JSON and None in Python"
    raise ConfigError(f"{name}={value!r} is not one of {listed}{hint}")


def from_dict(settings: type[Settings], given: object, where: str) -> Settings:
    """Build a settings dataclass from a mapping, refusing what it does not know.

    Args:
        settings: a dataclass of plain fields.
        given: the mapping, as JSON gave it.
        where: name of the place it came from, for the message.

    Raises:
        ConfigError: not a mapping; an unknown key (with the nearest known one); a missing key; a bad value.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: expected a mapping of settings, got {type(given).__name__}")
    fields: dict[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(settings)}  # pyright: ignore[reportArgumentType] - a dataclass by contract
    for key in given:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields)}"
            raise ConfigError(f"{where}: unknown setting {key!r}; {hint}")
    needed = [
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING and name not in given
    ]
    if needed:
        raise ConfigError(f"{where}: missing {', '.join(needed)}, which has no default; add it")
    return settings(**given)
