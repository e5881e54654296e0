"""Secrets that are made once: created with generated data where there is none, and never changed.

All pods of a job must find the same keys, whenever they start: also after a suspension, or where the
controller ended between making the Secret and making the JobSet. So the API server decides who was first:
the Secret is created, and one that is there already stays as it is.
"""

from __future__ import annotations

import base64

from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.generators import GENERATORS
from trainwright.cluster.port import Writer
from trainwright.control.actions import EnsureSecret
from trainwright.errors import AlreadyExists


async def ensure_secret(cluster: Writer, action: EnsureSecret) -> None:
    """Create the Secret unless it exists.

    One that no object controls is the user's own, and is used as it is. Raises `AlreadyExists` where
    another object controls it, such as an earlier TrainJob of the same name: it will go with that one.
    """
    owner_name = (_get_controller(action.object) or action.object["metadata"])["name"]
    generated = GENERATORS[action.generator](owner_name)
    data = {name: base64.b64encode(value).decode() for name, value in generated.items()}
    try:
        await cluster.create({**action.object, "data": data})
    except AlreadyExists:
        metadata = action.object["metadata"]
        key = ObjectKey("Secret", metadata.get("namespace", ""), metadata["name"])
        owner = _get_controller(await cluster.get(key))
        if owner is not None and owner["uid"] != (_get_controller(action.object) or {}).get("uid"):
            hint = (
                f"its owner is {owner['kind']} {owner['name']!r} with the uid {owner['uid']}; it goes with "
                "its owner, or delete it, or give the job another name"
            )
            raise AlreadyExists("Secret", key.name, hint) from None


def _get_controller(obj: Json) -> Json | None:
    """Return the owner reference that controls the object."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)
