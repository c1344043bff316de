"""The error that tells a user what to change."""


class InputError(ValueError):
    """Input that cannot be used; the message says what was expected, what came, and what to do."""


class MissingExtraError(InputError, ImportError):
    """A part of flipproof that is installed only when asked for; the message has the line that installs it."""
