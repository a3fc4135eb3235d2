"""The exceptions of paperlib that are addressed to the user; ``status`` is the command line's."""


class UserError(ValueError):
    """A mistake the user can mend: the message says what is wrong, which value, what is valid.

    The command line prints the message alone; notebooks show it as the last line of the traceback.
    """

    status = 2


class NotebookError(RuntimeError):
    """A notebook failed; the message names it, the cell, the error and the failed copy."""

    status = 1


def check_choice(what: str, value: object, valid: object) -> None:
    """Raise :class:`UserError` unless ``value`` is one of ``valid``, naming all valid values."""
    options = list(valid)  # type: ignore[call-overload]
    if value not in options:
        raise UserError(f"unknown {what} {value!r}; valid: {', '.join(map(str, options))}")
