"""What JobSet's webhook fills into a JobSet, sent along where leaving it out would be a change.

An apply replaces a list whole. Where JobSet filled fields of its elements when the object was made, the
next apply lacks them, and the API server refuses the difference: "Value is immutable". Such a job could
neither be suspended nor resumed. Both lists below are of that kind. Source: spec 02 section 14.2.
"""

from __future__ import annotations

from trainwright.api.meta import Json
from trainwright.template.resources import canonicalize_amounts


def fill_lists(spec: Json) -> Json:
    """Return the JobSet spec with its claim policies and failure policy rules as JobSet will store them."""
    filled = dict(spec)
    if spec.get("volumeClaimPolicies"):
        filled["volumeClaimPolicies"] = [_fill_claim_policy(policy) for policy in spec["volumeClaimPolicies"]]
    failure_policy = spec.get("failurePolicy") or {}
    if failure_policy.get("rules"):
        rules = [_fill_rule(rule, i) for i, rule in enumerate(failure_policy["rules"])]
        filled["failurePolicy"] = {**failure_policy, "rules": rules}
    return filled


def _fill_claim_policy(policy: Json) -> Json:
    retention = policy.get("retentionPolicy") or {}
    return {
        **policy,
        "retentionPolicy": {**retention, "whenDeleted": retention.get("whenDeleted") or "Delete"},
        "templates": [_fill_claim(template) for template in policy.get("templates") or ()],
    }


def _fill_claim(template: Json) -> Json:
    """Return the claim with the empty status and the canonical amounts that JobSet's own types write."""
    spec = template.get("spec") or {}
    if spec.get("resources"):
        spec = {**spec, "resources": canonicalize_amounts(spec["resources"])}
    return {**template, "spec": spec, "status": template.get("status") or {}}


def _fill_rule(rule: Json, index: int) -> Json:
    said = {key: value for key, value in rule.items() if value not in ([], "", None)}
    return {"name": f"failurePolicyRule{index}", **said}
