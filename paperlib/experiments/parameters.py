"""A notebook's parameters: what its tagged cell declares, and values checked against it."""

import ast
import json
from typing import Any

from paperlib.errors import UserError

_WORDS = {"true": True, "1": True, "false": False, "0": False}


def declared_parameters(notebook: Any, name: str) -> dict[str, Any]:
    """Name and default of each ``NAME = literal`` in the one cell tagged ``parameters``."""
    tagged = [
        (tag, cell.source) for cell in notebook.cells for tag in cell.metadata.get("tags", [])
    ]
    if any(tag == "injected-parameters" for tag, _ in tagged):
        raise UserError(f"{name} was executed with parameters, which another run would lose; "
                        "run the notebook that it was made from")  # fmt: skip
    sources = [source for tag, source in tagged if tag == "parameters"]
    if len(sources) != 1:
        raise UserError(f"{name} has {len(sources)} cells tagged 'parameters'; it must have one")
    declared: dict[str, Any] = {}
    try:
        for statement in ast.parse(sources[0]).body:
            match statement:
                case (
                    ast.Assign(targets=[ast.Name(id=key)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=key), value=ast.expr() as value)
                ):
                    declared[key] = ast.literal_eval(value)
                case _:
                    raise ValueError(f"{ast.unparse(statement)!r} on line {statement.lineno}")
    except Exception as error:  # of many kinds: no Python, no literal, a nesting too deep
        raise UserError(f"the parameters cell of {name} must hold lines NAME = literal and "
                        f"nothing else: {error}") from error  # fmt: skip
    return declared


def convert(name: str, value: Any, declared: dict[str, Any]) -> Any:
    """``value`` as the type of the parameter's default; a text is read as a command line's.

    A list is a literal, or items with commas between them; a default of None takes any literal,
    null, or a text.
    """
    if name not in declared:
        raise UserError(f"unknown parameter {name!r}; valid: {', '.join(declared) or 'none'}")
    default = declared[name]
    try:
        found = _as_type_of(default, _read(value, default) if isinstance(value, str) else value)
        # it goes into the notebook as source and as JSON: no path, NaN, numpy number, stray byte
        ast.literal_eval(repr(found))
        json.dumps(found, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
        return found
    except Exception as error:  # of many kinds: too large for a float, too deep, no literal
        kind = "plain value" if default is None else type(default).__name__
        raise UserError(f"parameter {name} is {_shown(value)}; it must be a {kind} like its "
                        f"default {default!r}") from error  # fmt: skip


def parse_pairs(pairs: list[list[str]]) -> dict[str, str]:
    """``-p name value`` pairs of a command line."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"parameter {name!r} is given twice")
    return dict(pairs)


def _read(text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    text = text.strip()
    if isinstance(default, bool):
        return _WORDS[text.lower()]
    if isinstance(default, list | tuple) and text[:1] not in ("[", "("):
        if default and all(isinstance(item, str) for item in default):
            return [item.strip() for item in text.split(",")] if text else []
        text = f"[{text}]"
    try:
        return None if text == "null" else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if default is None:
            return text
        raise


def _as_type_of(default: Any, value: Any) -> Any:
    if default is None:
        return value
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, list | tuple) and isinstance(value, list | tuple):
        if len({type(item) for item in default}) == 1:
            value = [_as_type_of(default[0], item) for item in value]
        return type(default)(value)
    if type(value) is not type(default):
        raise TypeError(value)
    return value


def _shown(value: Any) -> str:
    try:
        return repr(value)[:200]
    except (ValueError, RecursionError):  # an integer of thousands of digits, a deep list
        return f"a {type(value).__name__} that cannot be written down"
