"""JSON objects that are almost right: one value anywhere is replaced by one of another type, or left out."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

REPLACEMENTS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([[], {}, [{}], {"name": []}, [None], {"": None}, "a", "-1", -1, 2**40])
)


@st.composite
def mutated(draw: st.DrawFn, bodies: list[Any]) -> Any:
    """Draw one of the objects with up to three of its values replaced or removed."""
    body = json.loads(json.dumps(draw(st.sampled_from(bodies))))
    for _ in range(draw(st.integers(1, 3))):
        parent = body
        while isinstance(parent, dict | list) and parent:
            keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            key = draw(st.sampled_from(keys))
            inner = parent[key]
            if isinstance(inner, dict | list) and inner and draw(st.integers(0, 3)):
                parent = inner
            elif draw(st.integers(0, 3)):
                parent[key] = copy.deepcopy(draw(REPLACEMENTS))  # else later mutations would change it
                break
            else:
                del parent[key]
                break
    return body
