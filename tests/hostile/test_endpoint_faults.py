"""An endpoint that answers wrongly costs the question that it befalls, and nothing else.

Each fault goes through ``ask``, ``ask -o`` and ``bench run`` (where it befalls one question of three) and ``doctor``:
no row is lost, no command hangs, fails with anything but an error of ours, or shows the key, the user or the password.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_suite.endpoint_commands import Endpoints, always
from fault_suite.endpoint_faults import catalogue
from fault_suite.fault_server import FaultServer
from fault_suite.worker import Worker

_FAULTS = {fault.name: fault for fault in catalogue("http://127.0.0.2:9/v1/chat/completions", 1 << 22)}
# Of each family those that ended a whole run, or hung, before.
QUICK = [
    "closed in the body",
    "charset 'hex' with status 400",
    "a TLS handshake in place of an answer",
    "prompt_tokens: 400 digits",
    "reply: dotted capital I",
    "echo of the request in the reason, 401",
]
LONGER = [
    "500 with a body of 20 MB",
    "body that drips",
    "header that drips",
    "a chunk of 16 exabytes",
    "a gzip bomb (31)",
    "charset 'rot13'",
    "a body of 100,000 brackets",
    "content: [None]",
    "reply: lone surrogate",
    "reply: vertical tabs",
    "429 with Retry-After 'nan'",
]


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory, worker: Worker) -> Endpoints:
    return Endpoints(tmp_path_factory.mktemp("endpoints"), worker)


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_costs_one_row(endpoints: Endpoints, name: str) -> None:
    endpoints.problems.clear()
    endpoints.meet(_FAULTS[name])
    assert endpoints.problems == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LONGER, *(name for name in list(_FAULTS)[::17] if name not in QUICK + LONGER)])
def test_more_faults_of_the_fault_suite(endpoints: Endpoints, name: str) -> None:
    endpoints.problems.clear()
    endpoints.meet(_FAULTS[name])
    assert endpoints.problems == []


def test_no_redirect_leads_to_another_host(endpoints: Endpoints) -> None:
    with FaultServer(None, always, "127.0.0.1") as elsewhere:
        address = f"http://localhost:{elsewhere.port}/v1/chat/completions"
        faults = {fault.name: fault for fault in catalogue(address, 1 << 10)}
        endpoints.problems.clear()
        endpoints.meet(faults["redirect 307 to another host"])
        assert endpoints.problems == []
        assert elsewhere.requests == []


def test_the_fault_suite_has_a_hundred_faults_of_different_names() -> None:
    made = catalogue("http://127.0.0.2:9/", 1 << 10)
    assert len(made) >= 100
    assert len(_FAULTS) == len(made)


def test_a_check_that_could_not_fail_would_show_nothing(tmp_path: Path, worker: Worker) -> None:
    """A fault that says what it should not, and of which an answer is not expected, is found."""
    from fault_suite.fault_server import Fault, completion, says

    found = Endpoints(tmp_path / "runs", worker)
    found.meet(Fault("says Rome", says(completion("Rome"))))
    assert {problem.kind for problem in found.problems} == {"different"}
