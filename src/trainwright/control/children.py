"""How each rendered object is written: most are applied, a Secret with generated data is made once."""

from __future__ import annotations

from trainwright.api.constants import GENERATED_DATA_ANNOTATION
from trainwright.api.meta import Json
from trainwright.control.actions import Apply, EnsureSecret


def build_write(obj: Json) -> Apply | EnsureSecret:
    """Return the action that brings a rendered object into being."""
    generator = (obj["metadata"].get("annotations") or {}).get(GENERATED_DATA_ANNOTATION)
    if obj["kind"] == "Secret" and generator is not None:
        return EnsureSecret(object=obj, generator=generator)
    return Apply(object=obj)
