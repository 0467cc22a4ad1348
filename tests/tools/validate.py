#!/usr/bin/env python3
"""Validates results against the schemas that their tools advertise, with a validator that docent does not use.

Reads JSON lines {"what", "schema", "instance"} from stdin; prints what does not fit and ends with 1 then.
"""
import json
import sys

from jsonschema import Draft202012Validator

validators, wrong, count = {}, 0, 0
for line in sys.stdin:
    row = json.loads(line)
    key = json.dumps(row["schema"], sort_keys=True)
    if key not in validators:
        Draft202012Validator.check_schema(row["schema"])
        validators[key] = Draft202012Validator(row["schema"])
    count += 1
    for error in list(validators[key].iter_errors(row["instance"]))[:3]:
        wrong += 1
        print(f"{row['what']}: {error.json_path}: {error.message[:300]}")
print(f"{count} results, {len(validators)} schemas, {wrong} mistakes")
sys.exit(1 if wrong else 0)
