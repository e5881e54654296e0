"""Pods of a JobSet really run: they start, find each other by name, finish, and their logs can be read."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kube.node_tests.training import exec_in_pod, read_log, wait_until
from trainwright.api.meta import ObjectKey

MEET = """
import http.server, os, socket, threading, time, urllib.request

rank = int(os.environ["JOB_COMPLETION_INDEX"])
body = f"hello from {rank}".encode()

class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
        met.set()
    def log_message(self, *_):
        pass

met = threading.Event()
server = http.server.ThreadingHTTPServer(("", 8000), Hello)
threading.Thread(target=server.serve_forever, daemon=True).start()
other = f"meet-node-0-{1 - rank}.meet"
for _ in range(200):
    try:
        with urllib.request.urlopen(f"http://{other}:8000", timeout=2) as answer:
            print(f"{socket.gethostname()} heard: {answer.read().decode()}", flush=True)
        break
    except OSError:
        time.sleep(0.1)
assert met.wait(20)
"""


def build_job_set(namespace: str, name: str, image: str, command: list[str]) -> dict[str, Any]:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "node", "image": image, "imagePullPolicy": "Never", "command": command}],
    }
    job = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}]},
    }


async def test_two_pods_find_each_other_by_name_finish_and_leave_their_logs(real_cluster, kube, namespace):
    await kube.create(build_job_set(namespace, "meet", real_cluster.image, ["python3", "-c", MEET]))

    async def is_completed() -> bool:
        found = await kube.get(ObjectKey("JobSet", namespace, "meet"))
        conditions = found.get("status", {}).get("conditions", [])
        assert not any(c["type"] == "Failed" and c["status"] == "True" for c in conditions), conditions
        return any(c["type"] == "Completed" and c["status"] == "True" for c in conditions)

    await wait_until(kube, namespace, is_completed)
    pods = (await kube.list("Pod", namespace)).items
    logs = {pod["spec"]["hostname"]: read_log(real_cluster, namespace, pod) for pod in pods}
    assert logs == {
        "meet-node-0-0": "meet-node-0-0 heard: hello from 1\n",
        "meet-node-0-1": "meet-node-0-1 heard: hello from 0\n",
    }


async def test_a_pod_reaches_the_api_server_as_its_own_service_account(real_cluster, kube, namespace):
    script = """
import os, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
where = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}'
request = urllib.request.Request(
    f"{where}/apis/authentication.k8s.io/v1/selfsubjectreviews", body,
    {"Authorization": "Bearer " + open(f"{folder}/token").read(), "Content-Type": "application/json"},
)
context = ssl.create_default_context(cafile=f"{folder}/ca.crt")
print(urllib.request.urlopen(request, context=context).read().decode())
"""
    job_set = build_job_set(namespace, "who", real_cluster.image, ["python3", "-c", script])
    await kube.create(job_set)

    async def is_completed() -> bool:
        pods = (await kube.list("Pod", namespace)).items
        return bool(pods) and all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in pods)

    await wait_until(kube, namespace, is_completed)
    pods = (await kube.list("Pod", namespace)).items
    answers = [json.loads(read_log(real_cluster, namespace, pod)) for pod in pods]
    assert {answer["status"]["userInfo"]["username"] for answer in answers} == {
        f"system:serviceaccount:{namespace}:default"
    }


async def test_commands_run_in_a_pod_through_the_api_server(real_cluster, kube, namespace):
    await kube.create(build_job_set(namespace, "still", real_cluster.image, ["sleep", "100"]))

    async def is_running() -> bool:
        pods = (await kube.list("Pod", namespace)).items
        return len(pods) == 2 and all(pod["status"]["phase"] == "Running" for pod in pods)

    await wait_until(kube, namespace, is_running)
    for pod in (await kube.list("Pod", namespace)).items:
        said = await asyncio.to_thread(exec_in_pod, real_cluster, pod, "hostname")
        assert said.strip() == pod["spec"]["hostname"]
