"""Texts that a user may write, those above all that mean something to a shell or to TOML."""

from __future__ import annotations

from hypothesis import strategies as st

_AWKWARD = "'\"\\$`;&|<>(){}[]*?!#%~= \t\n"

# No surrogates and no NUL: neither is in a file or a command line.
texts = st.text(
    st.one_of(st.sampled_from(_AWKWARD), st.characters(codec="utf-8", exclude_characters="\0")),
    min_size=1,
    max_size=20,
)
