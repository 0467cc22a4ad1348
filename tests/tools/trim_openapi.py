#!/usr/bin/env python3
"""Cuts an OpenAPI document down to some of its operations, as arguments of tools need them.

    trim_openapi.py DOCUMENT OPERATION_ID... > excerpt.json

Kept: parameters, request bodies and what they refer to. Left out: replies (projections shape those),
examples, vendors' `x-` members, links to documentation. The packs github and kubernetes are made with it.
"""
import json
import sys

LEFT_OUT = {"example", "examples", "externalDocs", "callbacks", "security", "servers", "deprecated"}
METHODS = {"get", "put", "post", "delete", "patch", "head", "options"}


def slim(value, names=False):
    """`names`: the members are names that the author chose (properties, components), all are kept."""
    if isinstance(value, dict):
        return {
            k: slim(v, names=not names and k in ("properties", "schemas", "parameters", "responses"))
            for k, v in value.items()
            if names or (k not in LEFT_OUT and not k.startswith("x-"))
        }
    if isinstance(value, list):
        return [slim(v) for v in value]
    return value


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for v in value.values():
            yield from references(v)
    elif isinstance(value, list):
        for v in value:
            yield from references(v)


def at(document, pointer):
    for step in pointer.removeprefix("#/").split("/"):
        document = document[step.replace("~1", "/").replace("~0", "~")]
    return document


def put(document, pointer, value):
    *steps, last = pointer.removeprefix("#/").split("/")
    for step in steps:
        document = document.setdefault(step.replace("~1", "/").replace("~0", "~"), {})
    document[last.replace("~1", "/").replace("~0", "~")] = value


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    wanted = set(sys.argv[2:])
    out = {"openapi": document["openapi"], "info": slim(document["info"]), "paths": {}}
    if document.get("servers"):
        out["servers"] = document["servers"]
    for path, item in document["paths"].items():
        kept = {}
        for method, operation in item.items():
            if method not in METHODS or operation.get("operationId") not in wanted:
                continue
            wanted.discard(operation["operationId"])
            kept[method] = slim(
                {k: v for k, v in operation.items() if k in ("operationId", "summary", "description", "tags", "parameters", "requestBody")}
            )
            status = next((s for s in operation["responses"] if s.startswith("2")), "200")
            kept[method]["responses"] = {status: {"description": "Done"}}
        if kept:
            shared = slim(item.get("parameters", []))
            out["paths"][path] = ({"parameters": shared} if shared else {}) | kept
    if wanted:
        sys.exit(f"not in the document: {', '.join(sorted(wanted))}")
    todo, done = list(references(out["paths"])), set()
    while todo:
        pointer = todo.pop()
        if pointer in done:
            continue
        done.add(pointer)
        value = slim(at(document, pointer))
        put(out, pointer, value)
        todo += references(value)
    json.dump(out, sys.stdout, ensure_ascii=False, indent=1, sort_keys=False)
    print()


main()
