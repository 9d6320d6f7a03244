"""A Python client generated from an OpenAPI document: one method per operation, every body checked by its schema."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urljoin
from urllib.request import Request, urlopen

from jsonschema import Draft7Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7

JSON = "application/json"
DOCUMENT = "urn:openapi-document"


class Answer(NamedTuple):
    """A response whose status and body are as the document says."""

    status: int
    headers: Mapping[str, str]
    data: Any


@dataclass
class GeneratedClient:
    """`client.create_project(body={…})`, `client.get_workload(workload_id=…)`: names are those of the document.

    Raises TypeError for arguments that an operation does not name, AssertionError where a body or a response is
    other than documented.
    """

    address: str
    document: Mapping[str, Any]
    token: str = ""
    operations: dict[str, tuple[str, str, Mapping[str, Any]]] = field(init=False)

    def __post_init__(self) -> None:
        routes = [
            (route["operationId"], (method, path, route))
            for path, methods in self.document["paths"].items()
            for method, route in methods.items()
        ]
        self.operations = dict(routes)
        assert len(self.operations) == len(routes), "operation ids are not unique"

    def __getattr__(self, name: str) -> Callable[..., Answer]:
        if name.startswith("_") or name not in self.operations:
            raise AttributeError(name)
        return partial(self._call, *self.operations[name])

    def problems(self, schema: Mapping[str, Any], value: Any) -> list[str]:
        """Where a value breaks a schema of this document."""
        checker = Draft7Validator(_draft7(schema), registry=self._registry)
        return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(value)]

    @cached_property
    def _registry(self) -> Registry[Any]:
        components = DRAFT7.create_resource({"components": _draft7(self.document["components"])})
        return Registry().with_resource(DOCUMENT, components).crawl()

    def _call(self, method: str, path: str, route: Mapping[str, Any], *, body: Any = None, **given: Any) -> Answer:
        places: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
        for parameter in route.get("parameters", ()):
            argument = parameter["name"].replace("-", "_")
            assert not parameter.get("required") or argument in given, f"{argument} is required"
            if argument in given:
                places[parameter["in"]][parameter["name"]] = str(given.pop(argument))
        if given:
            raise TypeError(f"{route['operationId']} takes no {sorted(given)}")
        filled = path.format(**{name: quote(value, safe="") for name, value in places["path"].items()})
        address = urljoin(urljoin(self.address, self.document["servers"][0]["url"]), filled)
        query = f"?{urlencode(places['query'])}" if places["query"] else ""
        headers = places["header"] | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        request = Request(address + query, self._encoded(route, body, headers), headers, method=method.upper())
        return self._checked(route, *_sent(request))

    def _encoded(self, route: Mapping[str, Any], body: Any, headers: dict[str, str]) -> bytes | None:
        if "requestBody" not in route:
            assert body is None, "no body is documented"
            return None
        assert body is not None or not route["requestBody"].get("required"), "a body is required"
        ((media_type, content),) = route["requestBody"]["content"].items()
        assert self.problems(content["schema"], body or {}) == []
        headers["Content-Type"] = media_type
        return json.dumps(body).encode() if media_type == JSON else urlencode(body).encode()

    def _checked(self, route: Mapping[str, Any], status: int, headers: Mapping[str, str], text: bytes) -> Answer:
        assert str(status) in route["responses"], f"{route['operationId']} answered {status}: {text[:500]!r}"
        content = route["responses"][str(status)].get("content", {})
        if JSON not in content:
            return Answer(status, headers, text.decode())
        data = json.loads(text)
        assert self.problems(content[JSON]["schema"], data) == []
        return Answer(status, headers, data)


def _sent(request: Request) -> tuple[int, Mapping[str, str], bytes]:
    try:
        with urlopen(request, timeout=30) as response:
            return response.status, response.headers, response.read()
    except HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def _draft7(value: Any) -> Any:
    """A schema of OpenAPI 3.0 as JSON schema has it: `nullable` is a choice, and references name the document."""
    if isinstance(value, list):
        return [_draft7(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: _draft7(each) for key, each in value.items() if key != "nullable"}
    if isinstance(value.get("$ref"), str):
        found["$ref"] = DOCUMENT + value["$ref"]
    return {"anyOf": [found, {"type": "null"}]} if value.get("nullable") is True else found
