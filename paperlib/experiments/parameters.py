"""A notebook's parameters: what its tagged cell declares, and values checked against it."""

from __future__ import annotations

import ast
import json
import math
import re
from typing import Any

from paperlib.errors import UserError

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")  # not 007, 1_000 or 1e3: nobody means them
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def declared_parameters(notebook: Any, name: str) -> dict[str, Any]:
    """Name and default of each assignment in the one cell tagged ``parameters``.

    Raises:
        UserError: no such cell or several; anything in it but ``NAME = literal`` and comments; a
            notebook that is itself the result of a run with parameters.
    """
    if any("injected-parameters" in cell.metadata.get("tags", []) for cell in notebook.cells):
        raise UserError(
            f"{name} was executed with parameters, which another run would lose; run the notebook "
            "that it was made from"
        )
    cells = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", [])
    ]
    if len(cells) != 1:
        raise UserError(
            f"{name} has {len(cells)} cells tagged 'parameters'; it must have exactly one"
        )
    try:
        statements = ast.parse(cells[0].source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise UserError(f"{name}: the parameters cell is not Python: {error}") from error
    declared: dict[str, Any] = {}
    for statement in statements:
        key, value = _assignment(statement)
        if key is None:
            raise UserError(
                f"{name}: line {statement.lineno} of the parameters cell is not NAME = literal: "
                f"{cells[0].source.splitlines()[statement.lineno - 1]}"
            )
        declared[key] = value
    return declared


def _assignment(statement: ast.stmt) -> tuple[str | None, Any]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    else:
        return None, None
    if not isinstance(target, ast.Name):
        return None, None
    try:
        return target.id, ast.literal_eval(value)
    except Exception:  # of many kinds: an unhashable key, a nesting too deep
        return None, None


def convert(name: str, value: Any, declared: dict[str, Any]) -> Any:
    """``value`` as the type of the parameter's default; a text is read as a command line's.

    bool: true, false, 1, 0. int: digits. float: finite, 1e-6 too. str: as it is. list and tuple:
    a literal, or items with commas between them; one item is a list of one. dict: a literal. A
    default of None takes null, None, any literal, or a text.

    Raises:
        UserError: unknown name (the valid ones are listed), or a value of another type.
    """
    if name not in declared:
        raise UserError(f"unknown parameter {name!r}; valid: {', '.join(declared) or 'none'}")
    default = declared[name]
    try:
        found = _read(value, default) if isinstance(value, str) else _check(value, default)
        # it goes into the notebook as source and as JSON: no path, NaN, numpy number, stray byte
        ast.literal_eval(repr(found))
        json.dumps(found, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
        return found
    except Exception as error:  # of many kinds: too large for a float, too deep, no literal
        kind = "plain value" if default is None else type(default).__name__
        raise UserError(
            f"parameter {name} is {_shown(value)}; it must be a {kind} like its default {default!r}"
        ) from error


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a deep list
        return f"a {type(value).__name__} that cannot be written down"
    return text if len(text) <= 200 else f"{text[:200]}..."


def _read(text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    text = text.strip()
    if isinstance(default, bool):
        if text.lower() not in _BOOLEANS:
            raise ValueError(text)
        return _BOOLEANS[text.lower()]
    if isinstance(default, int):
        if not _INTEGER.fullmatch(text):
            raise ValueError(text)
        return int(text)
    if isinstance(default, float):
        return _check(float(text), default)
    if isinstance(default, list | tuple):
        return _check(_read_items(text, default), default)
    if default is not None:
        return _check(ast.literal_eval(text), default)
    if text in ("null", "None"):
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _read_items(text: str, default: list | tuple) -> list:
    if text[:1] in ("[", "("):
        return list(ast.literal_eval(text))
    items = [item.strip() for item in text.split(",")] if text else []
    if not all(items):
        raise ValueError(text)
    if default and all(isinstance(item, str) for item in default):
        return items
    return [ast.literal_eval(item) for item in items]


def _check(value: Any, default: Any) -> Any:
    """A value that is no text, or the items of one, against the default's type."""
    if default is None:
        return value
    if isinstance(default, float) and type(value) in (int, float):
        if not math.isfinite(float(value)):
            raise ValueError(value)
        return float(value)
    if isinstance(default, list | tuple) and isinstance(value, list | tuple):
        if len({type(item) for item in default}) == 1:
            value = [_check(item, default[0]) for item in value]
        return type(default)(value)
    if type(value) is not type(default):
        raise TypeError(value)
    return value
