"""Does a reader's JSON Schema accept all that a writer's schema accepts? If not, why?

Rules:

- The answer is a list of named changes from writer to reader, each compatible or not. The names are
  those that users of other registries know.
- A change is compatible only if that is certain. What cannot be decided is `UNDECIDED` or one of
  the `CHANGED` kinds, and incompatible.
- A required property that is new is no obstacle if it has a default, although validators do not
  use defaults: programs that read do, and other registries rule so.
- The reader's conjuncts are taken one by one: its own keywords, the parts of `allOf` and `$ref`,
  its sums (`anyOf`, `oneOf`), `not`. The writer's are merged, see `json_view`.
- A pair of schemas that is met again while it is compared counts as compatible.
"""

from __future__ import annotations

from typing import Any

from ottla.schemas import json_keywords as keywords
from ottla.schemas.json_keywords import Changes, bad, good, is_fine
from ottla.schemas.json_schema import Documents, escape
from ottla.schemas.json_view import View, key_of, merged, schemas_of, types_of, view_of

OPAQUE = ("$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")
"""Keywords whose meaning depends on schemas around them: undecided in any reader."""
CONDITION = ("if", "then", "else")
CONTAINS = ("contains", "minContains", "maxContains")


def differences(reader: Any, writer: Any) -> list[tuple[str, str, str]]:
    """All reasons why the reader does not accept what the writer does; both are trees."""
    return [change[:3] for change in changes(reader, writer) if not change.is_compatible]


def changes(reader: Any, writer: Any) -> Changes:
    """All changes from the writer's schema to the reader's, compatible or not."""
    found = _Diff(reader, writer).compare(reader["root"], writer["root"], "#")
    return list(dict.fromkeys(found))


class _Diff:
    def __init__(self, reader: Any, writer: Any) -> None:
        self._documents = (Documents(reader), Documents(writer))
        self._views: dict[int, View] = {}
        self._flat: dict[int, dict[str, Any]] = {}
        self._known: dict[tuple[int, int], Changes] = {}
        self._open: dict[tuple[int, int], bool] = {}
        """Pairs that are being compared, and whether one inside has met them again."""
        self._equal: dict[tuple[int, int], bool] = {}
        self._apart: dict[tuple[int, int], bool] = {}
        self._built: dict[tuple[object, ...], Any] = {}
        """Schemas made here, kept so that no other object gets their identity."""

    # -- what a schema is

    def _view(self, node: Any) -> View:
        view = self._views.get(id(node))
        if view is None:
            target, alone = self._target(node)
            view = view_of({} if alone else node, target)
            self._views[id(node)] = view
        return view

    def _products(self, node: Any) -> int:
        """Schemas in the `allOf` of a document."""
        is_given = any(documents.has(node) for documents in self._documents)
        return len(node.get("allOf", ())) if is_given else 0

    def _target(self, node: Any) -> tuple[Any, bool]:
        """Where the `$ref` of a schema leads, and whether nothing beside it counts."""
        if isinstance(node, dict) and isinstance(node.get("$ref"), str):
            for documents in self._documents:
                if documents.has(node):
                    return documents.target(node)[1], documents.is_ref_alone
        return None, False

    def _flattened(self, node: Any) -> dict[str, Any]:
        """Keywords of a schema and of all its parts."""
        if id(node) not in self._flat:
            self._flat[id(node)] = {}  # for a part that leads back here
            view = self._view(node)
            flat = view.own
            for part in view.parts:
                flat = merged(flat, self._flattened(part))
            self._flat[id(node)] = flat
        return self._flat[id(node)]

    def _sums(self, node: Any) -> list[tuple[str, list[Any]]]:
        """The sums of a schema and of its parts."""
        sums: list[tuple[str, list[Any]]] = []
        seen: set[int] = set()
        left = [node]
        while left:
            one = left.pop()
            if id(one) not in seen:
                seen.add(id(one))
                view = self._view(one)
                sums += view.sums
                left += view.parts
        return sums

    def _join(self, *nodes: Any) -> Any:
        """The schema that asks for all of these."""
        key = tuple(map(id, nodes))
        if key not in self._built:
            self._built[key] = {"allOf": [*nodes]}
        return self._built[key]

    def _made(self, own: dict[str, Any], *key: object) -> Any:
        """The schema with these keywords, which are settled."""
        if key not in self._built:
            self._built[key] = own
            self._views[id(own)] = View(own=own)
        return self._built[key]

    def _same(self, one: Any, other: Any) -> bool:
        """Do two values say the same, with every `$ref` followed?"""
        pair = id(one), id(other)
        if pair not in self._equal:
            self._equal[pair] = self._equal_but(one, other, set())
        return self._equal[pair]

    def _equal_but(self, one: Any, other: Any, met: set[tuple[int, int]]) -> bool:
        """Are the values equal, if the pairs that were met are?"""
        if not isinstance(one, dict | list):
            return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
        if (id(one), id(other)) in met:
            return True
        met.add((id(one), id(other)))
        if isinstance(one, list):
            return (
                isinstance(other, list)
                and len(one) == len(other)
                and all(self._equal_but(*both, met) for both in zip(one, other, strict=True))
            )
        if not isinstance(other, dict) or one.keys() != other.keys():
            return False
        targets = self._target(one)[0], self._target(other)[0]
        return all(self._equal_but(one[key], other[key], met) for key in one) and (
            targets[0] is targets[1] or self._equal_but(*targets, met)
        )

    # -- comparing

    def compare(self, reader: Any, writer: Any, path: str) -> Changes:
        pair = id(reader), id(writer)
        known = self._known.get(pair)
        if known is not None:
            if pair in self._open:
                self._open[pair] = True
            # All of them would double with each level of a schema.
            return [change for change in known if not change.is_compatible][:1]
        before = len(self._known)
        self._known[pair] = []
        self._open[pair] = False
        found = self._compared(reader, writer, path)
        if self._open.pop(pair) and not is_fine(found):
            self._forget(before)
        self._known[pair] = found
        return found

    def _forget(self, before: int) -> None:
        """Drop verdicts that took a pair for compatible which is not."""
        for pair in [*self._known][before:]:
            if pair not in self._open and is_fine(self._known[pair]):
                del self._known[pair]

    def _fits(self, reader: Any, writer: Any, path: str = "") -> bool:
        return is_fine(self.compare(reader, writer, path))

    def _compared(self, reader: Any, writer: Any, path: str) -> Changes:
        wanted, given = self._view(reader), self._view(writer)
        if wanted.is_anything or given.is_nothing or self._same(reader, writer):
            return []
        if wanted.is_nothing:
            return [bad("TYPE_NARROWED", path, "nothing is accepted any more")]
        found = self._own(wanted, writer, path) if wanted.own else []
        for index, part in enumerate(wanted.parts):
            found += self._part(part, writer, index, wanted, path)
        if self._products(writer) > self._products(reader):
            found.append(good("PRODUCT_TYPE_NARROWED", path, "a schema of allOf was removed"))
        for keyword, branches in wanted.sums:
            found += self._sum(keyword, branches, writer, path)
        for excluded in wanted.excluded:
            found += self._excluded(excluded, writer, path)
        return found

    def _own(self, wanted: View, writer: Any, path: str) -> Changes:
        """The reader's own keywords against all that the writer says."""
        flat = self._flattened(writer)
        found = self._keywords(wanted.own, flat, path)
        if is_fine(found):
            return found
        reader = self._made(wanted.own, "own", id(wanted.own))
        for _, branches in self._sums(writer):
            each = [
                self.compare(reader, self._join(self._outside(writer), branch), path)
                for branch in branches
            ]
            inner = [change for one in each for change in one]
            if is_fine(inner):
                return inner
            if not flat:  # then these say more
                found = inner
        return found

    def _outside(self, writer: Any) -> Any:
        """What a schema says outside of its sums."""
        flat = self._flattened(writer)
        return self._made(flat, "own", id(flat))

    def _part(self, part: Any, writer: Any, index: int, wanted: View, path: str) -> Changes:
        inner = self.compare(part, writer, path)
        if is_fine(inner):
            return inner
        given = self._view(writer).parts
        if any(self._fits(part, one, path) for one in given):
            return []
        if len(wanted.parts) > max(1, len(given)) and index >= len(given):
            message = "a schema was added to allOf"
            return [*inner, bad("PRODUCT_TYPE_EXTENDED", f"{path}/allOf/{index}", message)]
        return inner

    def _sum(self, keyword: str, branches: list[Any], writer: Any, path: str) -> Changes:
        here = f"{path}/{keyword}"
        if len(branches) == 1:
            return self.compare(branches[0], writer, f"{here}/0")
        alternatives, is_exclusive = self._alternatives(branches, writer, keyword)
        found: Changes = []
        matched: list[int | None] = []
        for index, one in enumerate(alternatives):
            match = next((i for i, b in enumerate(branches) if self._fits(b, one, here)), None)
            matched.append(match)
            if match is None:
                if len(branches) == len(alternatives):
                    found += self.compare(branches[index], one, f"{here}/{index}")
                message = f"no branch of {keyword} accepts all of the writer's branch {index}"
                found.append(bad("SUM_TYPE_NARROWED", here, message))
        if found:
            return found
        if keyword == "oneOf":
            found += self._overlaps(branches, alternatives, matched, here, is_exclusive)
        if len(branches) > len(alternatives):
            found.append(good("SUM_TYPE_EXTENDED", here, f"{keyword} has more branches"))
        return found

    def _alternatives(
        self, branches: list[Any], writer: Any, keyword: str
    ) -> tuple[list[Any], bool]:
        """The writer as several schemas, one of which each value fits; whether only one."""
        sums = self._sums(writer)
        sums.sort(key=lambda one: one[0] != keyword)
        if sums:
            flat = self._flattened(writer)
            kind, given = sums[0]
            if flat:
                outside = self._outside(writer)
                given = [self._join(outside, branch) for branch in given]
            return given, kind == "oneOf"
        if any(self._fits(branch, writer) for branch in branches):
            return [writer], False
        flat = self._flattened(writer)
        types = types_of(flat) - ({"integer"} if "number" in types_of(flat) else set())
        if len(types) == 1 or "type" not in flat:
            return [writer], False
        return [self._made({**flat, "type": one}, one, id(flat)) for one in sorted(types)], False

    def _overlaps(
        self,
        branches: list[Any],
        alternatives: list[Any],
        matched: list[int | None],
        path: str,
        is_exclusive: bool,
    ) -> Changes:
        """`oneOf` refuses a value that two branches accept."""
        for number, one in enumerate(alternatives):
            others = [b for j, b in enumerate(alternatives) if j != number] if is_exclusive else []
            for index, branch in enumerate(branches):
                if index == matched[number] or self._are_apart(branch, one):
                    continue
                if any(self._fits(other, branch) for other in others):
                    continue  # the writer's own oneOf keeps these values out
                message = f"branches {matched[number]} and {index} of oneOf may accept one value"
                return [bad("UNDECIDED", path, message)]
        return []

    def _excluded(self, excluded: Any, writer: Any, path: str) -> Changes:
        here = f"{path}/not"
        if self._are_apart(excluded, writer):
            return []
        if any(self._fits(one, excluded, here) for one in self._view(writer).excluded):
            return [good("NOT_TYPE_NARROWED", here, "'not' excludes no more than before")]
        return [bad("NOT_TYPE_EXTENDED", here, "'not' may exclude more than before")]

    def _are_apart(self, one: Any, other: Any) -> bool:
        """Is it certain that no value fits both?"""
        pair = id(one), id(other)
        if pair not in self._apart:
            self._apart[pair] = False  # while it is not known
            self._apart[pair] = self._certainly_apart(one, other)
        return self._apart[pair]

    def _certainly_apart(self, one: Any, other: Any) -> bool:
        if self._view(one).is_nothing or self._view(other).is_nothing:
            return True
        first, second = self._flattened(one), self._flattened(other)
        common = types_of(first) & types_of(second)
        if not common:
            return True
        if "enum" in first and "enum" in second:
            return not {*map(key_of, first["enum"])} & {*map(key_of, second["enum"])}
        if common == {"object"} and self._objects_apart(first, second):
            return True
        return any(
            all(self._are_apart(branch, against) for branch in branches)
            for node, against in ((one, other), (other, one))
            for _, branches in self._view(node).sums
        )

    def _objects_apart(self, first: dict[str, Any], second: dict[str, Any]) -> bool:
        """A property that one of them requires cannot be the other's."""
        for name in (*first.get("required", ()), *second.get("required", ())):
            ours, theirs = schemas_of(first, name), schemas_of(second, name)
            if ours and theirs and any(self._are_apart(a, b) for a in ours for b in theirs):
                return True
        return False

    # -- keywords

    def _keywords(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
        found, common = keywords.types(reader, writer, path)
        if not common:
            return found
        found += keywords.values(reader, writer, path)
        if "string" in common:
            found += keywords.bounds(reader, writer, path, "maxLength", "minLength")
            found += keywords.pattern(reader, writer, path)
        if "integer" in common or "number" in common:
            found += keywords.number_range(reader, writer, path)
            found += keywords.multiple(reader, writer, path)
        if "object" in common:
            found += self._object(reader, writer, path)
        if "array" in common:
            found += self._array(reader, writer, path)
        return found + self._undecided(reader, writer, path)

    def _undecided(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
        found = [
            bad("UNDECIDED", f"{path}/{key}", f"cannot decide what {key!r} accepts")
            for key in OPAQUE
            if key in reader
        ]
        for keys in (CONDITION, CONTAINS):
            is_same = all(self._same(reader.get(key), writer.get(key)) for key in keys)
            if keys[0] in reader and not is_same:
                message = f"{keys[0]!r} was added or changed; cannot decide what it accepts"
                found.append(bad("UNDECIDED", f"{path}/{keys[0]}", message))
        return found

    def _object(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
        found = self._properties(reader, writer, path)
        found += self._patterns(reader, writer, path)
        found += self._additional(reader, writer, path)
        found += keywords.required(reader, writer, path)
        found += keywords.bounds(reader, writer, path, "maxProperties", "minProperties")
        found += keywords.dependent(reader, writer, path)
        for name, schema in reader.get("dependentSchemas", {}).items():
            here = f"{path}/dependentSchemas/{escape(name)}"
            given = writer.get("dependentSchemas", {}).get(name, True)
            if not self._fits(schema, given, here):
                message = f"what {name!r} asks of an object was added or changed"
                found.append(bad("DEPENDENCY_SCHEMA_ADDED", here, message))
        if "propertyNames" in reader:
            found += self.compare(
                reader["propertyNames"],
                writer.get("propertyNames", True),
                f"{path}/propertyNames",
            )
        return found

    def _properties(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
        found: Changes = []
        ours, theirs = reader.get("properties", {}), writer.get("properties", {})
        for name in dict.fromkeys((*ours, *theirs)):
            here = f"{path}/properties/{escape(name)}"
            wanted, given = schemas_of(reader, name), schemas_of(writer, name)
            if wanted is None or given is None:
                message = f"cannot decide which patternProperties {name!r} matches"
                found.append(bad("UNDECIDED", here, message))
                continue
            source = given[0] if len(given) == 1 else self._join(*given)
            inner = [one for schema in wanted for one in self.compare(schema, source, here)]
            if name in ours and name in theirs:
                found += inner
            elif name in ours:
                found += keywords.added(
                    name, inner, source, wanted, name in keywords.needed(reader), here
                )
            else:
                found += keywords.removed(name, inner, source, wanted, here)
        return found

    def _patterns(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
        """Names that match a pattern of either side, and are no property of the writer."""
        found: Changes = []
        ours, theirs = reader.get("patternProperties", {}), writer.get("patternProperties", {})
        rest = writer.get("additionalProperties", True)
        for pattern, schema in ours.items():
            here = f"{path}/patternProperties/{escape(pattern)}"
            if pattern in theirs:
                found += self.compare(schema, theirs[pattern], here)
                continue
            if any(not self._fits(schema, one, here) for one in (*theirs.values(), rest)):
                message = f"the pattern {pattern!r} is new, and the writer has other such names"
                found.append(bad("PATTERN_PROPERTY_ADDED", here, message))
        for pattern, schema in theirs.items():
            here = f"{path}/patternProperties/{escape(pattern)}"
            if pattern not in ours and not self._fits(
                reader.get("additionalProperties", True), schema, here
            ):
                message = f"the pattern {pattern!r} is not covered any more"
                found.append(bad("PATTERN_PROPERTY_REMOVED", here, message))
        return found

    def _additional(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
        here = f"{path}/additionalProperties"
        ours = reader.get("additionalProperties", True)
        theirs = writer.get("additionalProperties", True)
        if self._same(ours, theirs):
            return []
        if self._view(theirs).is_nothing:
            return [good("ADDITIONAL_PROPERTIES_ADDED", here, "more properties are accepted")]
        if self._view(ours).is_nothing:
            message = "properties that are not named are not accepted any more"
            return [bad("ADDITIONAL_PROPERTIES_REMOVED", here, message)]
        if self._fits(ours, theirs, here):
            return [good("ADDITIONAL_PROPERTIES_EXTENDED", here, "more properties are accepted")]
        message = "properties that are not named must fit a narrower schema"
        return [bad("ADDITIONAL_PROPERTIES_NARROWED", here, message)]

    def _array(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Changes:
        found = keywords.bounds(reader, writer, path, "maxItems", "minItems")
        if reader.get("uniqueItems") and not writer.get("uniqueItems"):
            here = f"{path}/uniqueItems"
            found.append(bad("UNIQUE_ITEMS_ADDED", here, "items must be unique now"))
        elif writer.get("uniqueItems") and not reader.get("uniqueItems"):
            here = f"{path}/uniqueItems"
            found.append(good("UNIQUE_ITEMS_REMOVED", here, "items need not be unique"))
        ours, theirs = reader.get("prefixItems", []), writer.get("prefixItems", [])
        rest, given = reader.get("items", True), writer.get("items", True)
        for index in range(max(len(ours), len(theirs))):
            here = f"{path}/prefixItems/{index}"
            wanted = ours[index] if index < len(ours) else rest
            source = theirs[index] if index < len(theirs) else given
            inner = self.compare(wanted, source, here)
            if index < len(ours) and index < len(theirs):
                found += inner
            else:
                word = "ADDED_TO" if index < len(ours) else "REMOVED_FROM"
                found += keywords.item(word, inner, source if word == "ADDED_TO" else rest, here)
        if max(len(ours), len(theirs)) and self._view(rest).is_nothing:
            if not self._view(given).is_nothing:
                message = "items beyond the listed ones are not accepted any more"
                found.append(bad("ADDITIONAL_ITEMS_REMOVED", f"{path}/items", message))
            return found
        return found + self.compare(rest, given, f"{path}/items")
