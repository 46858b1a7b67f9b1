"""Finds fields that a flow names and its sources do not have, without Spark.

Only what is certain is told: a name may come from another column, from a join or from a helper. So
these uses of a parameter that the function does not assign are checked, and no others:

- `orders["amount"]` and `orders.amount`;
- names in `orders.select(...)`, `groupBy`, `orderBy`, `sort`, `dropDuplicates`, `where`, `filter`,
  `withColumn` and `agg`, called on the parameter itself, or after methods that keep its columns:
  text where the method takes names, `col("amount")`, and `sum("amount")` and its like.

A statement of SQL is bound by DuckDB, if it is installed, over empty tables with these columns.
What DuckDB does not understand is left to Spark.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Any

    import pyarrow as pa

TAKES_NAMES: Final = frozenset({"select", "groupBy", "groupby", "orderBy", "sort"})
TAKES_COLUMNS: Final = TAKES_NAMES | {"where", "filter", "withColumn", "agg"}
KEEPS_COLUMNS: Final = frozenset(
    {"where", "filter", "orderBy", "sort", "limit", "distinct", "dropDuplicates", "withWatermark"}
)
GROUPS: Final = frozenset({"groupBy", "groupby"})
OF_ONE_NAME: Final = frozenset(
    {"col", "column", "sum", "avg", "mean", "min", "max", "count", "countDistinct", "first", "last"}
    | {"collect_list", "collect_set", "sum_distinct", "count_distinct", "stddev", "variance"}
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_UNBOUND: Final = re.compile(
    r'Referenced column "([^"]+)" (?:was )?not found'
    r'|does not have a column named "([^"]+)"'
)


def unknown_in_function(
    function: Callable[..., object], columns: Mapping[str, Collection[str]]
) -> list[tuple[str, str]]:
    """(parameter, field) for each field that is not a column; `columns` are by parameter."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
        [defined] = [one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)]
    except (OSError, SyntaxError, ValueError):  # a lambda, or made by another function
        return []
    assigned = {
        one.id
        for one in ast.walk(defined)
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
    }
    inner = {
        arg.arg
        for one in ast.walk(defined)
        if isinstance(one, ast.arguments) and one is not defined.args
        for arg in one.args + one.kwonlyargs
    }
    found: dict[tuple[str, str], None] = {}
    for parameter, names in columns.items():
        if parameter in assigned or parameter in inner:
            continue
        known = {one.lower() for one in names}
        for name in _named(defined, parameter):
            if _NAME.fullmatch(name) and name.partition(".")[0].lower() not in known:
                found[parameter, name] = None
    return list(found)


def unknown_in_sql(sql: str, tables: Mapping[str, pa.Schema]) -> str | None:
    """The first field of a statement that none of the tables has; None if there is none to tell."""
    try:
        import duckdb
    except ImportError:
        return None
    with duckdb.connect() as connection:
        for name, columns in tables.items():
            connection.register(name, columns.empty_table())
        try:
            connection.execute(f"EXPLAIN {sql.strip().rstrip(';')}")
        except duckdb.BinderException as error:
            found = _UNBOUND.search(str(error))
            unbound: str = "" if found is None else found[1] or found[2]
            # In Spark a text may stand in double quotes, which DuckDB takes for a name.
            return None if not unbound or f'"{unbound}"' in sql else unbound
        except duckdb.Error:  # Spark's own functions and words
            return None
    return None


def nearest(name: str, names: Collection[str]) -> str:
    """A hint for a field that is not there."""
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}"


def _named(defined: ast.FunctionDef, parameter: str) -> Iterator[str]:
    for node in ast.walk(defined):
        if isinstance(node, ast.Subscript) and _is(node.value, parameter):
            yield from _text(node.slice)
        elif isinstance(node, ast.Attribute) and _is(node.value, parameter):
            if not _is_of_frames(node.attr):
                yield node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and _has_columns_of(node.func.value, parameter, grouped=node.func.attr == "agg")
        ):
            others = {one.arg for one in defined.args.args + defined.args.kwonlyargs}
            names = {
                one.id for arg in node.args for one in ast.walk(arg) if isinstance(one, ast.Name)
            }
            if not names & (others - {parameter}):
                yield from _named_in_call(node, node.func.attr)


def _named_in_call(call: ast.Call, method: str) -> Iterator[str]:
    if method == "dropDuplicates":
        for one in call.args:
            for name in one.elts if isinstance(one, ast.List | ast.Tuple) else ():
                yield from _text(name)
    if method not in TAKES_COLUMNS:
        return
    if method in TAKES_NAMES:
        for one in call.args:
            yield from _text(one)
    inside = [each for one in call.args for each in ast.walk(one)]
    calls = [one for one in inside if isinstance(one, ast.Call) and one.args]
    # A select may use a name that it gives itself.
    given = {
        name
        for one in calls
        if isinstance(one.func, ast.Attribute) and one.func.attr in ("alias", "name")
        for name in _text(one.args[0])
    }
    for one in calls:
        if _function(one.func) in OF_ONE_NAME:
            yield from (name for name in _text(one.args[0]) if name not in given)


def _function(called: ast.expr) -> str:
    """The name of a function, `col` or `f.col`; empty for methods of other things."""
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def _has_columns_of(node: ast.expr, parameter: str, *, grouped: bool) -> bool:
    """Whether names in a call on this frame are those of the parameter's columns."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return _is(node, parameter)
    if node.func.attr in KEEPS_COLUMNS or (grouped and node.func.attr in GROUPS):
        return _has_columns_of(node.func.value, parameter, grouped=False)
    return False


def _is(node: ast.expr, parameter: str) -> bool:
    return isinstance(node, ast.Name) and node.id == parameter


def _text(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _is_of_frames(name: str) -> bool:
    """Whether it is a method or property of frames."""
    try:
        from pyspark.sql import DataFrame
    except ImportError:
        return True
    kind: Any = DataFrame
    return name.startswith("_") or hasattr(kind, name)
