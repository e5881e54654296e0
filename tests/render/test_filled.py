from __future__ import annotations

import pytest

from trainwright.api.meta import Json
from trainwright.render.filled import fill_lists

CLAIM: Json = {"metadata": {"name": "work"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
KEPT = {"retentionPolicy": {"whenDeleted": "Delete"}}

CASES: dict[str, tuple[Json, Json]] = {
    "nothing to fill": (
        {"successPolicy": {"operator": "Any"}, "failurePolicy": {"maxRestarts": 1}},
        {"successPolicy": {"operator": "Any"}, "failurePolicy": {"maxRestarts": 1}},
    ),
    "R01 claims get a retention policy and an empty status": (
        {"volumeClaimPolicies": [{"templates": [CLAIM]}]},
        {"volumeClaimPolicies": [{**KEPT, "templates": [{**CLAIM, "status": {}}]}]},
    ),
    "a retention policy is kept": (
        {"volumeClaimPolicies": [{"templates": [], "retentionPolicy": {"whenDeleted": "Retain"}}]},
        {"volumeClaimPolicies": [{"templates": [], "retentionPolicy": {"whenDeleted": "Retain"}}]},
    ),
    "amounts are canonical, as JobSet stores them": (
        {
            "volumeClaimPolicies": [
                {
                    "templates": [
                        {
                            "metadata": {"name": "w"},
                            "spec": {"resources": {"requests": {"storage": "1024Mi"}}},
                        }
                    ]
                }
            ]
        },
        {
            "volumeClaimPolicies": [
                {
                    **KEPT,
                    "templates": [
                        {
                            "metadata": {"name": "w"},
                            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
                            "status": {},
                        }
                    ],
                }
            ]
        },
    ),
    "rules get names, and lose what is empty": (
        {
            "failurePolicy": {
                "rules": [
                    {"action": "FailJobSet"},
                    {"name": "mine", "action": "x"},
                    {"name": "", "targetReplicatedJobs": []},
                ]
            }
        },
        {
            "failurePolicy": {
                "rules": [
                    {"name": "failurePolicyRule0", "action": "FailJobSet"},
                    {"name": "mine", "action": "x"},
                    {"name": "failurePolicyRule2"},
                ]
            }
        },
    ),
}


@pytest.mark.parametrize(("spec", "filled"), CASES.values(), ids=CASES)
def test_what_jobset_fills_is_sent_along(spec: Json, filled: Json) -> None:
    assert fill_lists(spec) == filled
    assert fill_lists(filled) == filled
