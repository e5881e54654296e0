"""The errors that reach a user, and the exit code each of them means.

    UserError                    something the user can put right
      UsageError           (2)   wrong words on the command line
      InvalidObject        (2)   one or more field errors
      NotFound             (3)   no such object
        KindNotServed      (3)   the target does not know objects of this kind at all
      AlreadyExists        (2)   an object of that name is there
      Conflict             (1)   somebody else changed the object meanwhile
      Forbidden            (1)   the target refuses the request
      TargetUnreachable    (4)   the target does not answer
      StateDirectoryError  (4)   the local state directory cannot be used
      MissingPackage       (1)   an optional package is not installed

A message says what failed, on which object and field, and what to do. Anything that is not a
`UserError` is a bug and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from trainwright.field_errors import FieldError


class UserError(Exception):
    """Base of every error that a user can put right."""

    exit_code: ClassVar[int] = 1


class UsageError(UserError):
    """The command line, or a combination of its options, makes no sense."""

    exit_code = 2


class InvalidObject(UserError):
    """An object breaks one or more rules; carries all of them, in the order of the object."""

    exit_code = 2

    def __init__(self, errors: Sequence[FieldError], source: str = "") -> None:
        self.errors = tuple(errors)
        self.source = source
        super().__init__("\n".join(f"{source}: {e}" if source else str(e) for e in self.errors))


class NotFound(UserError):
    """No object of this kind and name."""

    exit_code = 3

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"{kind} {name!r} does not exist" + (f"; {hint}" if hint else ""))


class KindNotServed(NotFound):
    """The target does not know this kind: what brings it is not installed, or has another version."""

    def __init__(self, kind: str, api_version: str) -> None:
        self.kind = kind
        self.name = ""
        self.api_version = api_version
        UserError.__init__(self, f"{kind} of {api_version} is not known here: nobody has installed it")


class AlreadyExists(UserError):
    """An object of this kind and name is already there."""

    exit_code = 2

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"{kind} {name!r} already exists" + (f"; {hint}" if hint else ""))


class Conflict(UserError):
    """The object changed since it was read, or another field manager owns the field."""


class Forbidden(UserError):
    """The target understands the request and refuses it."""


class TargetUnreachable(UserError):
    """The target (cluster, engine, daemon) does not answer."""

    exit_code = 4


class StateDirectoryError(UserError):
    """The local state directory cannot be read or written."""

    exit_code = 4


class MissingPackage(UserError):
    """Something needs a package that is not among those that are always installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        self.package = package
        super().__init__(f"{what} needs the package {package!r}: pip install 'trainwright[{extra}]'")
