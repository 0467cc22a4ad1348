"""Checks requests that docent built from OpenAPI documents against those documents, with openapi-core.

Usage: openapi_check.py FILE, where FILE is a list of {document, requests}; see tests/it/openapi.rs. Prints every
refusal and fails when there is one that is not a known fault of the document or of the checker.
"""

import json
import sys
import uuid
import warnings
from collections import Counter
from urllib.parse import urlencode

import yaml
from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from werkzeug.datastructures import Headers, ImmutableMultiDict

warnings.filterwarnings("ignore")
HOST = "http://docent.test"
# Refusals that are no fault of the request: (document or "", text of the refusal, why). One that no longer occurs
# fails the check too, so that the list stays true.
KNOWN = [
    ("", "Tried to write read-only property", "the specification knows readOnly for properties only; the checker also minds it for whole parameters and list items"),
    ("", "DeserializeError: ('deepObject'", "the checker reads deepObject for flat objects only"),
    ("", "CastError: Failed to cast value to ", "the same, one level deeper"),
    ("openai.com.json", "is not of type 'integer'", "the checker does not read numbers in parts of multipart bodies"),
    ("openai.com.json", "is not of type 'number'", "the same"),
    ("openai.com.json", "None is not valid under any of the given schemas", "`nullable` beside `oneOf`: meant by its author, without effect by the letter of 3.0.3"),
    ("docker.com__engine.json", "is not of type 'object'", "the document gives an object as application/octet-stream"),
    ("docker.com__engine.json", "b'hi' is not of type 'string'", "the checker takes bytes for no text"),
    ("spotify.com.json", "is not a 'byte'", "the same"),
    ("azure.com__storage-DataLakeStorage.json", "(?!", "a pattern with a look-ahead is not checked by docent"),
    ("nexmo.com__reports.json", "'none' is not one of", "the checker fills in a default that is not in the enumeration"),
    ("vercel.com.json", "TypeError: Expected a string value", "the checker fails on a union of a text and a list"),
    ("stripe.com.json", "MissingRequiredRequestBody", "an empty object in a form is an empty body"),
]
CONFIG = Config(
    spec_validator_cls=None,
    extra_media_type_deserializers={"application/merge-patch+json": json.loads, "application/apply-patch+yaml": yaml.safe_load},
)
METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


def load(path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file) if path.endswith(".json") else yaml.safe_load(file)
    # Addresses and credentials are not docent's operation binding: they come from upstream.toml.
    document["servers"] = [{"url": HOST}]
    document.pop("security", None)
    places = {
        (scheme["in"], scheme["name"])
        for scheme in document.get("components", {}).get("securitySchemes", {}).values()
        if scheme.get("type") == "apiKey"
    }
    # Headers that the specification tells to ignore as parameters, and one that HTTP itself sets.
    ignored = {"accept", "content-type", "authorization", "content-length"}

    def keep(parameter):
        if "$ref" in parameter:
            target = document
            for part in parameter["$ref"][2:].split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")]
            parameter = target
        place = (parameter.get("in"), parameter.get("name"))
        return place not in places and not (place[0] == "header" and place[1].lower() in ignored)

    for shared in document.get("components", {}).get("requestBodies", {}).values():
        name_any_type(shared)
    for item in document["paths"].values() if document.get("paths") else []:
        item.pop("servers", None)
        for method, operation in [("", item)] + list(item.items()):
            if method and method not in METHODS:
                continue
            operation.pop("servers", None)
            operation.pop("security", None)
            name_any_type(operation.get("requestBody", {}))
            if "parameters" in operation:
                operation["parameters"] = [p for p in operation["parameters"] if keep(p)]
    return document


def name_any_type(request_body):
    """Any type, as which docent sends JSON; the checker parses named types only."""
    content = request_body.get("content", {})
    if "*/*" in content:
        content["application/json"] = content.pop("*/*")


class Request:
    def __init__(self, sent):
        headers = [(k, v) for k, v in sent["headers"] if k not in ("cookie", "content-type")]
        given = dict((k, v) for k, v in sent["headers"])
        cookies = [c.split("=", 1) for c in given.get("cookie", "").split("; ") if c]
        self.host_url = HOST
        self.path = sent["path"]
        self.method = sent["method"].lower()
        self.body, kind = body(sent["body"])
        self.content_type = given.get("content-type", kind)
        self.parameters = RequestParameters(
            query=ImmutableMultiDict([tuple(pair) for pair in sent["query"]]),
            header=Headers(headers),
            cookie=ImmutableMultiDict([tuple(c) for c in cookies]),
        )


def body(sent):
    if sent is None:
        return None, ""
    if "json" in sent:
        return json.dumps(sent["json"]).encode(), "application/json"
    if "form" in sent:
        return urlencode([tuple(pair) for pair in sent["form"]]).encode(), "application/x-www-form-urlencoded"
    if "raw" in sent:
        return sent["raw"].encode(), sent["content_type"]
    boundary = uuid.uuid4().hex
    out = b""
    for part in sent["multipart"]:
        name = f'; filename="{part["file_name"]}"' if part["file_name"] else ""
        kind = f'\r\nContent-Type: {part["content_type"]}' if part["content_type"] else ""
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{part["name"]}"{name}{kind}\r\n\r\n'
        out += head.encode() + part["text"].encode() + b"\r\n"
    return out + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        documents = json.load(file)
    refused, accepted, known = [], Counter(), Counter()
    for entry in documents:
        name = entry["document"].rsplit("/", 1)[-1]
        if not entry["requests"]:
            continue
        api = OpenAPI.from_dict(load(entry["document"]), config=CONFIG)
        for sent in entry["requests"]:
            try:
                api.validate_request(Request(sent))
                accepted[name] += 1
            except Exception as error:  # every refusal is shown, of whatever kind
                causes, cause = [], error
                while cause is not None and len(causes) < 5:
                    faults = getattr(cause, "schema_errors", None)
                    text = "; ".join(fault.message[-200:] for fault in faults) if faults else str(cause)[:200]
                    causes.append(f"{type(cause).__name__}: {text[:600]}")
                    cause = cause.__cause__
                why = " <- ".join(causes)
                reasons = [i for i, (at, text, _) in enumerate(KNOWN) if at in ("", name) and text in why]
                if reasons:
                    known[reasons[0]] += 1
                else:
                    refused.append((name, sent, why))
    print("accepted:", sum(accepted.values()), dict(accepted))
    for name, sent, why in refused:
        shown = {k: sent[k] for k in ("path", "query", "headers", "body")}
        print(f"REFUSED {name} {sent['tool']} {sent['method']} {sent['template']}: {why}\n    {json.dumps(shown)[:600]}")
    stale = [KNOWN[i][:2] for i in range(len(KNOWN)) if not known[i]]
    print("refused:", len(refused), "known:", sum(known.values()), "known ones that no longer occur:", stale)
    sys.exit(1 if refused or stale else 0)


if __name__ == "__main__":
    main()
