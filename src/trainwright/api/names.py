"""The syntax of names in Kubernetes. Each `explain_*` returns what is wrong with a name, None if nothing is.

Source: Kubernetes, "Object Names and IDs" and "Labels and Selectors".
"""

from __future__ import annotations

import re
from typing import Final

from trainwright.api.wording import shorten

MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_STRICT_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_URL_PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")


def explain_label(name: str) -> str | None:
    """RFC 1123 label: namespaces, containers."""
    if not _LABEL.fullmatch(name):
        return f"{shorten(name)} may have lower case letters, digits and '-' only, and no '-' at either end"
    return _explain_length(name, MAX_LABEL)


def explain_strict_label(name: str) -> str | None:
    """RFC 1035 label: as RFC 1123, and begins with a letter. TrainJobs, services, pods of a JobSet."""
    if not _STRICT_LABEL.fullmatch(name):
        return (
            f"{shorten(name)} may have lower case letters, digits and '-' only, must begin with a letter "
            f"and not end with '-'{_suggest_label(name)}"
        )
    return _explain_length(name, MAX_LABEL)


def explain_subdomain(name: str) -> str | None:
    """RFC 1123 subdomain: most objects."""
    if not _SUBDOMAIN.fullmatch(name):
        return (
            f"{shorten(name)} may have lower case letters, digits, '-' and '.' only, "
            "with a letter or digit at both ends of every part"
        )
    return _explain_length(name, MAX_SUBDOMAIN)


def explain_domain_path(path: str) -> str | None:
    """Domain-prefixed path such as `example.com/queue`: managers."""
    domain, slash, rest = path.partition("/")
    if not slash or not domain or not rest:
        return f"{shorten(path)} must be a domain, a slash and a name, such as example.com/queue"
    if problem := explain_subdomain(domain):
        return f"{problem} (before the slash)"
    if not _URL_PATH.fullmatch(rest):
        return f"{shorten(rest)} may have letters, digits and /-._~%!$&'()*+,;=: only (after the slash)"
    return None


def explain_config_key(key: str) -> str | None:
    """Key of a ConfigMap or Secret, which is a file name when mounted."""
    if (
        not _CONFIG_KEY.fullmatch(key)
        or key in {".", ".."}
        or key.startswith("..")
        or len(key) > MAX_SUBDOMAIN
    ):
        return f"{shorten(key)} is no key: use up to 253 letters, digits, '-', '_' and '.', no leading '..'"
    return None


def explain_label_key(key: str) -> str | None:
    """Key of a label or annotation."""
    prefix, slash, name = key.rpartition("/")
    if slash and explain_subdomain(prefix):
        return f"{shorten(key)} is no label key: what stands before the / must be a domain in lower case"
    if not _QUALIFIED_NAME.fullmatch(name) or len(name) > MAX_LABEL:
        return (
            f"{shorten(key)} is no label key: the name has 1 to 63 letters, digits, '-', '_' or '.', "
            "with a letter or digit at both ends"
        )
    return None


def explain_label_value(value: str) -> str | None:
    """Value of a label; may be empty."""
    if value and (len(value) > MAX_LABEL or not _QUALIFIED_NAME.fullmatch(value)):
        return (
            f"{shorten(value)} is no label value: it has at most 63 letters, digits, '-', '_' or '.', "
            "with a letter or digit at both ends"
        )
    return None


def _explain_length(name: str, longest: int) -> str | None:
    return f"may have at most {longest} characters, has {len(name)}" if len(name) > longest else None


def _suggest_label(name: str) -> str:
    """Return "; for example my-job" where a name can be put right."""
    better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    better = f"job-{better}" if better[:1].isdigit() else better
    return f"; for example {better}" if _STRICT_LABEL.fullmatch(better) else ""
