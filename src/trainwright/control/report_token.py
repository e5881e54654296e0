"""What a token says of itself: for which TrainJob it is good, until when, and whose pod has it.

Read without a look at the signature: what does not even claim to be right is refused without asking anybody.
Whether the claims are true, a TokenReview tells. Source: spec 03 section 1.6; Kubernetes, "Schema for service
account private claims" and "Additional metadata in Pod bound tokens".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

# How a TokenReview tells of the pod that a token is bound to, in the user's extra fields.
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_ACCOUNT: Final = "system:serviceaccount:"
_MAX_CHARACTERS: Final = 16_384


class Reporter(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, as a token names it."""

    namespace: str
    pod_name: str
    pod_uid: str


class ReportToken(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a token."""

    reporter: Reporter
    audiences: tuple[str, ...]
    expires_at: datetime


class _Pod(msgspec.Struct, frozen=True):
    name: str
    uid: str


class _Kubernetes(msgspec.Struct, frozen=True):
    namespace: str
    pod: _Pod


class _Claims(msgspec.Struct, frozen=True):
    aud: str | list[str]
    exp: int
    kubernetes: _Kubernetes = msgspec.field(name="kubernetes.io")


_DECODER: Final = msgspec.json.Decoder(_Claims)


def read_token(token: str) -> ReportToken | None:
    """Return what the token claims; None for one that is not bound to a pod, or no token at all."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > _MAX_CHARACTERS:
        return None
    try:
        payload = base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True)
        claims = _DECODER.decode(payload)
        expires_at = datetime.fromtimestamp(claims.exp, UTC)
    except (binascii.Error, ValueError, OverflowError, OSError, msgspec.MsgspecError):
        return None
    bound = claims.kubernetes
    return ReportToken(
        reporter=Reporter(namespace=bound.namespace, pod_name=bound.pod.name, pod_uid=bound.pod.uid),
        audiences=(claims.aud,) if isinstance(claims.aud, str) else tuple(claims.aud),
        expires_at=expires_at,
    )


def read_review(status: Mapping[str, Any], audience: str) -> Reporter | None:
    """Return the pod whose token a TokenReview found good for the audience, None for any other answer."""
    if not status.get("authenticated") or audience not in (status.get("audiences") or ()):
        return None
    user: Mapping[str, Any] = status.get("user") or {}
    extra: Mapping[str, list[str]] = user.get("extra") or {}
    names, uids = extra.get(_POD_NAME) or [], extra.get(_POD_UID) or []
    username = str(user.get("username") or "")
    namespace = username.removeprefix(_ACCOUNT).partition(":")[0] if username.startswith(_ACCOUNT) else ""
    if len(names) != 1 or len(uids) != 1 or not namespace:
        return None
    return Reporter(namespace=namespace, pod_name=names[0], pod_uid=uids[0])
