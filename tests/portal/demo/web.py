"""People with a browser and robots with a token, over real HTTP: they know addresses, forms and JSON, nothing else."""

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode, urljoin

from tests.portal.demo.installation import PASSWORD

TIMEOUT = 30.0
Attributes = dict[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, after redirects."""

    status: int
    url: str
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def words(self) -> str:
        """The text as a reader sees it: no tags, single spaces."""
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", self.text)))


class Caller:
    """Anything that asks over HTTP and keeps its cookies."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        jar = urllib.request.HTTPCookieProcessor(CookieJar())
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), jar)
        self.headers: dict[str, str] = {}

    def ask(self, method: str, path: str, data: bytes | None = None, **headers: str) -> Answer:
        """Raises OSError where nobody answers."""
        url = urljoin(self.origin, path)
        request = urllib.request.Request(url, data, {**self.headers, **headers}, method=method)
        try:
            with self.opener.open(request, timeout=TIMEOUT) as answer:
                return Answer(answer.status, answer.url, answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, url, error.read().decode())


class Robot(Caller):
    """The demo's service account."""

    def __init__(self, origin: str) -> None:
        super().__init__(origin)
        secret = {"grantType": "client_credentials", "clientId": "demo-automation", "clientSecret": PASSWORD}
        answer = self.send("POST", "v1/token", secret)
        assert answer.status == 200, answer.text
        self.headers["Authorization"] = f"Bearer {answer.json['accessToken']}"

    def send(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        return self.ask(method, f"/api/{path}", data, **{"Content-Type": "application/json", **headers})

    def get(self, path: str) -> Any:
        answer = self.send("GET", path)
        assert answer.status == 200, answer.text
        return answer.json

    def project_id(self, name: str) -> str:
        """By way of a workload that is in it."""
        found = self.get(f"v1/workloads?filterBy=projectName=={name}&limit=1")["workloads"]
        return str(found[0]["projectId"])

    def submit(self, project_id: str, manifest: dict[str, Any], *, key: str = "", **wishes: str) -> Answer:
        """A manifest with what its sender wishes explicitly."""
        headers = {"Idempotency-Key": key} if key else {}
        body = {"metadata": {"projectId": project_id, **wishes}, "manifest": manifest}
        return self.send("POST", "v2/workloads", body, **headers)

    def workload(self, workload_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"v1/workloads/{workload_id}")
        return found


class Person(Caller):
    """Somebody with a browser who has signed in on the real page."""

    def __init__(self, origin: str, name: str, password: str = PASSWORD) -> None:
        super().__init__(origin)
        self.name = name
        self.first = self.fill("/login/", username=name, password=password)

    def open(self, path: str) -> Answer:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.text
        return answer

    def fill(self, path: str, *, action: str = "", **values: str) -> Answer:
        """Open a page, fill in its form (the one with this action) and send it as a browser does."""
        page = self.open(path)
        form = form_in(page, action or path)
        data = urlencode({**form.values, **values}).encode()
        return self.ask("POST", urljoin(page.url, form.action), data, Referer=page.url)


@dataclass
class Form:
    """A form of a page with what it holds already."""

    action: str
    values: Attributes = field(default_factory=dict)


class Forms(HTMLParser):
    """Finds the forms of a page."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.found: list[Form] = []
        self.open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and given.get("method", "get").lower() == "post":
            self.found.append(Form(given.get("action") or self.url))
        elif self.found:
            self._field(tag, given)

    def _field(self, tag: str, given: Attributes) -> None:
        name, values = given.get("name", ""), self.found[-1].values
        if tag == "input" and name and (given.get("type") not in {"radio", "checkbox"} or "checked" in given):
            values[name] = given.get("value", "")
        elif tag in {"select", "textarea"}:
            self.open = name
            values[name] = ""
        elif tag == "option" and "selected" in given:
            values[self.open] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"select", "textarea"}:
            self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open and self.lasttag == "textarea":
            self.found[-1].values[self.open] += data


def form_in(page: Answer, action: str) -> Form:
    forms = Forms(page.url)
    forms.feed(page.text)
    return next(form for form in forms.found if action in form.action)


def training(name: str, *, gpus: int, hours: float, checkpoint: str = "") -> dict[str, Any]:
    """A PyTorchJob of one pod that runs for so many hours of the simulated cluster's time."""
    notes = {"rung.dev/run-seconds": str(int(hours * 3600))}
    if checkpoint:
        notes["rung.dev/checkpoint-interval"] = checkpoint
    limits = {"nvidia.com/gpu": gpus}
    container = {"name": "pytorch", "image": "nvcr.io/nvidia/pytorch:25.08-py3", "resources": {"limits": limits}}
    replicas = {"Master": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": notes},
        "spec": {"pytorchReplicaSpecs": replicas},
    }
