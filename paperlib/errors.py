"""The one exception of paperlib that is addressed to the user."""


class UserError(ValueError):
    """A mistake the user can mend: the message says what is wrong, which value, what is valid.

    The command line prints the message alone and exits with status 2; notebooks show it as the
    last line of the traceback.
    """


def check_choice(what: str, value: object, valid: object) -> None:
    """Raise :class:`UserError` unless ``value`` is one of ``valid``, naming all valid values."""
    options = list(valid)  # type: ignore[call-overload]
    if value not in options:
        raise UserError(f"unknown {what} {value!r}; valid: {', '.join(map(str, options))}")
