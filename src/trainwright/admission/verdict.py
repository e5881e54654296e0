"""What admission says about an object."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainwright.field_errors import FieldError, Rule


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """All errors, and warnings, which never keep an object out.

    `invalid` are broken rules of the schema, which an API server answers with 422 Invalid before any webhook
    is asked; `denied` are those that need more than the object itself, which the peer's webhook answers with
    403 Forbidden. Clients tell the two apart, so they are kept apart here.
    """

    invalid: tuple[FieldError, ...] = ()
    denied: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """Everything that keeps the object out."""
        return self.invalid + self.denied

    @property
    def is_allowed(self) -> bool:
        """Say whether the object may be stored."""
        return not self.errors

    @property
    def status_code(self) -> int:
        """The HTTP status of the answer: 422 where the schema speaks, else 403; 200 where all is well."""
        if self.invalid:
            return 422
        return 403 if self.denied else 200


def refuse(path: str, rule: Rule, detail: str, value: object = None) -> FieldError:
    """Return a field error."""
    return FieldError(path=path, rule=rule, detail=detail, value=value)


def forget_repeated(errors: Iterable[FieldError]) -> tuple[FieldError, ...]:
    """Return the errors without those that say the same about the same field again."""
    return tuple({(error.path, error.detail): error for error in errors}.values())
