"""The registry as a machine over `_schemas`: `decide` gives records and an answer.

Ids and versions
- An id belongs to a schema (text, kind, references, metadata, rules) within a context. A new schema
  gets the highest id that the context ever had, plus one; ids are never given twice.
- A version is the highest that the subject ever had, plus one; versions are never given twice.
- A schema that the subject has, not deleted, is answered as it is: nothing is written, in any mode.
- A soft-deleted one comes back as a new version with its old id.

Registering
- A schema that must fit others is answered with `Check`. Whoever asked compares them and asks again
  with the check it `passed`; if the subject has changed meanwhile, the answer is another `Check`.
- References name versions that exist and are not deleted.
- IMPORT mode: `id` must be given, `version` may be; nothing is compared. An id that has another
  schema is refused, and so is a version that the subject has.

Deleting
- Soft first. What is soft-deleted is still found by id, and by those who ask for deleted versions.
- A version that another one references is not deleted; the others count as well if they are only
  soft-deleted, when the delete is a hard one: their schema is still read.
- A hard delete leaves a mark of the highest id or version, if it took its record (`records`).

Settings
- What counts for a subject is its own, its context's, that of all, in this order, but for the mode
  READONLY_OVERRIDE of all, which beats them. READONLY refuses all changes but those of modes.
- IMPORT is possible where there are no versions, or by force.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, assert_never

from ottla.coordination.machine import Decision
from ottla.registry.errors import Code, RegistryError
from ottla.registry.names import context_of
from ottla.registry.records import (
    MAX_INT,
    ConfigRecord,
    ForeignKeyEnded,
    ModeRecord,
    Noop,
    SchemaRecord,
    SchemaTombstone,
    SubjectDeleted,
    decode,
    encode,
    guid_of,
    key_of,
)
from ottla.registry.requests import (
    Deleted,
    DeleteSubject,
    DeleteVersion,
    Done,
    Look,
    Register,
    Registered,
    SetConfig,
    SetMode,
)
from ottla.registry.state import (
    IMPORT,
    READONLY,
    READONLY_OVERRIDE,
    READWRITE,
    State,
    is_in_scope,
    referenced,
)
from ottla.registry.views import must_fit
from ottla.schemas.compatibility import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.clock import Now
    from ottla.coordination.machine import Token
    from ottla.registry.records import Known, Record
    from ottla.registry.requests import Request, Response
    from ottla.registry.state import Version
    from ottla.schemas.model import Schema

logger = logging.getLogger(__name__)


class RegistryMachine:
    """`default` is the level where none is set."""

    def __init__(self, default: Level = Level.BACKWARD) -> None:
        self.state = State()
        self.default = default
        self.passed_over = 0
        """Records of the topic that could not be understood."""

    # -- what the runtime calls -------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        record = decode(key, value)
        if record is None:
            self.passed_over += 1
            return
        self.state.met(key, record, ended=value is None)
        self.state.apply(record)

    def loaded(self, now: Now) -> None:
        if self.passed_over:
            logger.warning(
                "%d records of the schema registry's topic are no records of a registry; they are "
                "passed over",
                self.passed_over,
            )

    def decide(self, request: Request, token: Token, now: Now) -> Decision[Record, Response]:
        decision: Decision[Record, Response] = Decision()
        answer: Response
        try:
            answer = self._answer(request, decision)
        except RegistryError as error:
            assert not decision.records, "what is refused changes nothing"
            answer = error
        decision.reply(token, answer)
        return decision

    def tick(self, now: Now) -> Decision[Record, Response]:
        return Decision()

    def next_deadline(self) -> int | None:
        return None

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return encode(record)

    def _answer(self, request: Request, decision: Decision[Record, Response]) -> Response:
        match request:
            case Look(view=view):
                return Done(view(self.state))
            case Register():
                return self._register(request, decision)
            case DeleteVersion():
                return self._delete_version(request, decision)
            case DeleteSubject():
                return self._delete_subject(request, decision)
            case SetConfig():
                return self._set_config(request, decision)
            case SetMode():
                return self._set_mode(request, decision)
            case _ as unreachable:
                assert_never(unreachable)

    def _emit(self, decision: Decision[Record, Response], *records: Known) -> None:
        """Decide on records, and apply them at once."""
        for record in records:
            foreign = self.state.foreign_keys.get(key_of(record))
            if foreign is not None:
                self._emit_one(decision, ForeignKeyEnded(foreign))
            self._emit_one(decision, record)

    def _emit_one(self, decision: Decision[Record, Response], record: Record) -> None:
        decision.records.append(record)
        self.state.apply(record)

    # -- registering ------------------------------------------------------------------------------

    def _register(self, request: Register, decision: Decision[Record, Response]) -> Response:
        state, subject, schema = self.state, request.subject, request.schema
        entity = guid_of(schema)
        for version in reversed(state.versions(subject)):
            if version.entity == entity and request.id in (None, version.id):
                return Registered(version)
        self._check_mode(request)
        self._check_references(subject, schema)
        context = context_of(subject)
        if request.id is not None:
            self._check_import(request, entity)
            number = request.id
        else:
            check = must_fit(state, subject, schema, self.default)
            if check.against and check != request.passed:
                return check
            known = state.id_of(context, entity)
            number = self._next_id(context) if known is None else known
        version_number = request.version or state.highest(subject) + 1
        if request.id is None and version_number != state.highest(subject) + 1:
            raise RegistryError(
                Code.INVALID_SCHEMA,
                f"version {request.version} is not the next of {subject}, which is "
                f"{state.highest(subject) + 1}; only in IMPORT mode it can be chosen",
            )
        self._emit(
            decision,
            SchemaRecord(subject, version_number, number, schema, deleted=False, guid=entity),
        )
        return Registered(state.subjects[subject].by_number[version_number])

    def _check_mode(self, request: Register) -> None:
        mode = self.state.mode(request.subject)
        if mode in (READONLY, READONLY_OVERRIDE):
            raise _not_permitted(f"{request.subject} is in {mode} mode")
        if request.id is not None and mode != IMPORT:
            raise _not_permitted(f"an id can be given in IMPORT mode alone, not in {mode}")
        if request.id is None and mode == IMPORT:
            raise _not_permitted(f"{request.subject} is in IMPORT mode, where an id must be given")

    def _check_references(self, subject: str, schema: Schema) -> None:
        for name, number in referenced(subject, schema):
            found = self.state.version(name, number)
            if found is None or found.deleted:
                raise RegistryError(
                    Code.INVALID_SCHEMA,
                    f"there is no version {number} of {name}, to which the schema refers",
                )

    def _check_import(self, request: Register, entity: str) -> None:
        state, subject = self.state, request.subject
        assert request.id is not None
        for holder in state.by_id(context_of(subject), request.id):
            if holder.entity != entity:
                raise _not_permitted(
                    f"id {request.id} has another schema, in {holder.subject} version "
                    f"{holder.version}"
                )
        if request.version is not None and state.version(subject, request.version) is not None:
            raise _not_permitted(f"{subject} has a version {request.version} already")

    def _next_id(self, context: str) -> int:
        ids = self.state.contexts.get(context)
        number = 1 if ids is None else ids.highest + 1
        if number > MAX_INT:
            raise RegistryError(Code.STORE, f"all ids of the context {context} have been given")
        return number

    # -- deleting ---------------------------------------------------------------------------------

    def _delete_version(
        self, request: DeleteVersion, decision: Decision[Record, Response]
    ) -> Response:
        state, subject = self.state, request.subject
        self._check_writable(subject)
        versions = state.versions(subject, deleted=True)
        if not versions:
            raise _no_subject(subject)
        if request.version is None:
            latest = [one for one in versions if request.permanent or not one.deleted]
            version = latest[-1] if latest else None
        else:
            version = state.version(subject, request.version)
        if version is None:
            raise RegistryError(Code.NO_VERSION, f"{subject} has no version {request.version}")
        if version.deleted and not request.permanent:
            raise RegistryError(
                Code.VERSION_SOFT_DELETED,
                f"{subject} version {version.version} is soft-deleted; permanent=true deletes it",
            )
        if request.permanent and not version.deleted:
            raise RegistryError(
                Code.VERSION_NOT_SOFT_DELETED,
                f"{subject} version {version.version} is not deleted; delete it without "
                "permanent=true first",
            )
        self._check_unreferenced([version], permanent=request.permanent)
        if request.permanent:
            self._hard_delete(subject, [version], decision)
        else:
            self._emit(decision, version.record(deleted=True))
        return Deleted((version.version,))

    def _delete_subject(
        self, request: DeleteSubject, decision: Decision[Record, Response]
    ) -> Response:
        state, subject = self.state, request.subject
        self._check_writable(subject)
        every = state.versions(subject, deleted=True)
        live = [one for one in every if not one.deleted]
        if not every:
            raise _no_subject(subject)
        if request.permanent and live:
            raise RegistryError(
                Code.SUBJECT_NOT_SOFT_DELETED,
                f"{subject} is not deleted; delete it without permanent=true first",
            )
        if not request.permanent and not live:
            raise RegistryError(
                Code.SUBJECT_SOFT_DELETED,
                f"{subject} is soft-deleted; permanent=true deletes it",
            )
        going = every if request.permanent else live
        self._check_unreferenced(going, permanent=request.permanent)
        if request.permanent:
            self._hard_delete(subject, going, decision)
        else:
            # Of those that are deleted already, some may be so by an earlier record of this key.
            self._emit(decision, SubjectDeleted(subject, every[-1].version))
            for settings, gone in (
                (state.configs, ConfigRecord(subject, None)),
                (state.modes, ModeRecord(subject, None)),
            ):
                if subject in settings:
                    self._emit(decision, gone)
        return Deleted(tuple(one.version for one in going))

    def _check_unreferenced(self, going: Sequence[Version], *, permanent: bool) -> None:
        places = {one.place for one in going}
        for version in going:
            for referrer in self.state.referrers_of(version.place, deleted=permanent):
                if referrer.place not in places:
                    raise RegistryError(
                        Code.REFERENCED,
                        f"{version.subject} version {version.version} is referenced by "
                        f"{referrer.subject} version {referrer.version}",
                    )

    def _hard_delete(
        self, subject: str, going: Iterable[Version], decision: Decision[Record, Response]
    ) -> None:
        state = self.state
        for version in going:
            self._emit(decision, SchemaTombstone(subject, version.version))
        left, highest = state.versions(subject, deleted=True), state.highest(subject)
        if not left:
            self._emit(decision, SubjectDeleted(subject, highest))
        elif left[-1].version < highest and left[-1].highest < highest:
            self._emit(decision, left[-1].record(highest=highest))
        context = context_of(subject)
        ids = state.contexts[context]
        if ids.highest not in ids.holders and state.highest_ids.get(context) != ids.highest:
            self._emit(decision, Noop({**state.highest_ids, context: ids.highest}))

    # -- settings ---------------------------------------------------------------------------------

    def _set_config(self, request: SetConfig, decision: Decision[Record, Response]) -> Response:
        state, subject = self.state, request.subject
        self._check_writable(subject)
        before = state.configs.get(subject)
        if request.values is None:
            if before is None and subject is not None:
                raise RegistryError(Code.NO_CONFIG, f"{subject} has no configuration of its own")
            if before is not None:
                self._emit(decision, ConfigRecord(subject, None))
            return Done(before)
        values: dict[str, Any] = {**(before or {}), **request.values}
        if values != before:
            self._emit(decision, ConfigRecord(subject, values))
        return Done(values)

    def _set_mode(self, request: SetMode, decision: Decision[Record, Response]) -> Response:
        state, subject = self.state, request.subject
        before = state.modes.get(subject)
        if request.mode is None and before is None and subject is not None:
            raise RegistryError(Code.NO_MODE, f"{subject} has no mode of its own")
        if request.mode == IMPORT and state.mode(subject) != IMPORT and not request.force:
            for name in state.named():
                if is_in_scope(name, subject):
                    raise _not_permitted(
                        f"{name} has versions; IMPORT mode would let clients write others beside "
                        "them; force=true if that is meant"
                    )
        if request.mode != before:
            self._emit(decision, ModeRecord(subject, request.mode))
        return Done(before or READWRITE)

    def _check_writable(self, subject: str | None) -> None:
        mode = self.state.mode(subject)
        if mode in (READONLY, READONLY_OVERRIDE):
            where = "the registry" if subject is None else subject
            raise _not_permitted(f"{where} is in {mode} mode")


def _no_subject(subject: str) -> RegistryError:
    return RegistryError(Code.NO_SUBJECT, f"there is no subject {subject}")


def _not_permitted(message: str) -> RegistryError:
    return RegistryError(Code.NOT_PERMITTED, message)
