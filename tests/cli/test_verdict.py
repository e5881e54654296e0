"""How a job ended, in words."""

from datetime import UTC, datetime, timedelta

from trainwright.api.meta import Condition, ObjectMeta
from trainwright.api.trainjob import Cause, Metric, TrainerStatus, TrainJob, TrainJobStatus
from trainwright.cli.verdict import format_end, format_failure

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def job(**status) -> TrainJob:
    return TrainJob(metadata=ObjectMeta(name="digits"), status=TrainJobStatus(**status))


def test_the_last_line_has_state_time_and_metrics():
    ended = job(
        phase="Complete",
        start_time=NOW - timedelta(seconds=192),
        completion_time=NOW,
        trainer_status=TrainerStatus(metrics=[Metric(name="accuracy", value="0.97222222")]),
    )
    assert format_end(ended, NOW + timedelta(hours=1)) == "digits: Complete after 3m12s; accuracy=0.9722"


def test_the_last_line_of_a_job_that_never_began_is_short():
    assert format_end(job(phase="Failed"), NOW) == "digits: Failed"


def test_a_failure_is_told_by_its_cause():
    cause = Cause(
        layer="Pod",
        kind="Pod",
        name="p",
        reason="Evicted",
        message="no room\nat all",
        hint="ask for less",
        since=NOW,
    )
    assert format_failure(job(cause=cause)) == "Pod p: Evicted\n  no room\n  at all\nto do: ask for less"


def test_a_failure_without_cause_is_told_by_its_condition():
    condition = Condition(
        type="Failed",
        status="True",
        reason="DeadlineExceeded",
        message="took too long",
        last_transition_time=NOW,
    )
    assert format_failure(job(conditions=[condition])) == "DeadlineExceeded: took too long"


def test_a_failure_of_which_nothing_is_known_says_where_to_look():
    assert format_failure(job()) == "no cause is known; see `trainwright explain digits`"
