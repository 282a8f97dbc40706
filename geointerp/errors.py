"""The errors that geointerp raises on purpose.

Each message says what was asked, what was given, why it does not fit, and what to do.
"""


class GeointerpError(ValueError):
    """Base of every deliberate error; a ValueError, so that callers need no import of ours to catch it."""


class FactsError(GeointerpError):
    """A table of facts, or a file that should hold one, is not usable."""


class ConfigError(GeointerpError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another one."""


class CheckpointError(GeointerpError):
    """A run folder, or a file in it, is missing, damaged, or from another version."""


class TrainingError(GeointerpError):
    """Training cannot go on: the loss is not finite, or the model does not fit the facts."""


class MeasureError(GeointerpError):
    """A measure was asked for something that its input does not determine."""


class HookError(GeointerpError):
    """A hook returned something that cannot stand in for the activation it was given."""


def shown(text: object) -> str:
    """A name or path for a message: quoted, on one line, the middle left out where it is long."""
    text = str(text)
    return repr(text if len(text) <= 200 else f"{text[:100]}...{text[-60:]}")


def one_line(error: object) -> str:
    """The first line of another library's message, for the end of one of ours."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
