//! Documents in, requests out: one small document per shape, the whole request asserted.

mod hostile;

use serde_json::{Value, json};

use super::{CredentialPlace, Filter, Import, Location, Operation, Options, SchemeKind, import};
use crate::call::{ErrorCode, HttpBody, HttpRequest, ToolError};
use crate::catalog::Tool;
use crate::id::UpstreamId;
use crate::schema::Validators;

fn options() -> Options {
    Options::new(UpstreamId::parse("u").unwrap())
}

fn load(document: &str) -> Import {
    import(document.as_bytes(), "a.yaml", &|_| Err("no such file".to_owned()), &options()).unwrap()
}

fn v3(paths: &str) -> Import {
    load(&format!("openapi: 3.0.3\nservers: [{{url: 'https://h/v1'}}]\npaths:\n{paths}"))
}

fn only(import: &Import) -> &(Tool, Operation) {
    assert_eq!(import.skipped, [], "nothing is skipped");
    assert_eq!(import.tools.len(), 1);
    &import.tools[0]
}

fn request(import: &Import, args: &Value) -> Result<HttpRequest, ToolError> {
    let (tool, operation) = only(import);
    let problems = Validators::default().check(&tool.input_schema, args).unwrap();
    assert_eq!(problems, [], "arguments fit the schema {:?}", tool.input_schema);
    operation.request(args.as_object().unwrap())
}

/// The request as text: `METHOD path?query | header: value | body`.
fn sent(import: &Import, args: &Value) -> String {
    let r = request(import, args).unwrap();
    let query: Vec<String> = r.query.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    let headers: Vec<String> = r.headers.iter().map(|(k, v)| format!(" | {k}: {v}")).collect();
    let headers = headers.concat();
    let body = match r.body {
        None => String::new(),
        Some(HttpBody::Json(v)) => format!(" | json {v}"),
        Some(HttpBody::Form(pairs)) => {
            let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!(" | form {}", pairs.join("&"))
        }
        Some(HttpBody::Multipart(parts)) => {
            let parts: Vec<String> = parts
                .iter()
                .map(|p| {
                    let text = String::from_utf8_lossy(&p.bytes);
                    format!("{}({:?},{:?})={text}", p.name, p.file_name, p.content_type)
                })
                .collect();
            format!(" | parts {}", parts.join("; ").replace("Some(", "").replace("\")", "\""))
        }
        Some(HttpBody::Raw { content_type, bytes }) => {
            format!(" | raw {content_type} {}", String::from_utf8_lossy(&bytes))
        }
    };
    format!("{} {}{mark}{}{headers}{body}", r.method, r.path, query.join("&"))
}

fn schema(import: &Import) -> Value {
    only(import).0.input_schema.value()
}

#[test]
fn parameters_go_where_they_belong_in_the_order_of_the_document() {
    let import = v3(r"
  /a/{id}/b{ext}:
    parameters:
      - {name: id, in: path, required: true, schema: {type: string}}
      - {name: q, in: query, description: replaced, schema: {type: integer}}
      - {name: X-Trace, in: header, schema: {type: array, items: {type: string}}}
    get:
      operationId: getIt
      parameters:
        - {name: ext, in: path, required: true, style: label, explode: true, schema: {type: array, items: {type: string}}}
        - {name: q, in: query, schema: {type: string}}
        - {name: f, in: query, style: deepObject, schema: {type: object, additionalProperties: true}}
        - {name: j, in: query, content: {application/json: {schema: {type: object}}}}
        - {name: p, in: query, style: pipeDelimited, explode: false, schema: {type: array, items: {type: string}}}
        - {name: sid, in: cookie, schema: {type: string}}
      responses: {200: {description: '', content: {text/csv: {}, application/json: {}}}}
");
    let args = json!({"id": "x/..", "ext": ["tar", "gz"], "q": "a b", "f": {"k": [1]}, "j": {"z": 1},
        "p": ["1", "2"], "X-Trace": ["a", "b"], "sid": "s;1"});
    let expected = "GET /a/x%2F../b.tar.gz?q=a b&f[k][0]=1&j={\"z\":1}&p=1|2 | X-Trace: a,b | cookie: sid=s%3B1 | accept: application/json, text/csv";
    assert_eq!(sent(&import, &args), expected);
    assert_eq!(import.base_url.as_deref(), Some("https://h/v1"));
    let (tool, operation) = only(&import);
    assert_eq!(tool.id.as_str(), "u.getIt");
    assert_eq!(&*tool.search_hints, "GET /a/{id}/b{ext} getIt");
    assert!(operation.is_read_only() && tool.annotations.read_only == Some(true));
    let missing = operation.request(json!({"id": "x"}).as_object().unwrap()).unwrap_err();
    assert_eq!((missing.code, missing.field.as_deref()), (ErrorCode::InvalidArgument, Some("/ext")));
}

#[test]
fn clashing_names_are_told_apart_and_recorded() {
    let import = v3(r"
  /a/{id}:
    post:
      parameters:
        - {name: id, in: path, required: true, schema: {type: string}}
        - {name: id, in: query, schema: {type: string}}
        - {name: $top, in: query, schema: {type: integer}}
        - {name: 'ids[]', in: query, schema: {type: array, items: {type: integer}}}
      requestBody:
        required: true
        content: {application/json: {schema: {type: object, required: [id], properties: {id: {type: integer}, name: {type: string}}}}}
");
    let args = json!({"id": "p", "query_id": "q", "top": 3, "ids": [1, 2], "body_id": 7, "name": "n"});
    assert_eq!(sent(&import, &args), r#"POST /a/p?id=q&$top=3&ids[]=1&ids[]=2 | json {"id":7,"name":"n"}"#);
    let (tool, operation) = only(&import);
    assert_eq!(tool.id.as_str(), "u.post_a_id");
    let renames: Vec<(&str, Location, &str)> =
        operation.renames().iter().map(|r| (r.argument.as_str(), r.location, r.name.as_str())).collect();
    let expected = [
        ("query_id", Location::Query, "id"),
        ("top", Location::Query, "$top"),
        ("ids", Location::Query, "ids[]"),
        ("body_id", Location::Body, "id"),
    ];
    assert_eq!(renames, expected);
    let schema = schema(&import);
    assert_eq!(schema["required"], json!(["id", "body_id"]));
    assert_eq!(schema["properties"]["body_id"]["description"], "(body member `id`)");
    assert_eq!(schema["additionalProperties"], json!(false));
}

#[test]
fn an_optional_body_is_sent_when_a_member_is_given_and_then_whole() {
    let import = v3(r"
  /a:
    patch:
      requestBody:
        content: {application/merge-patch+json: {schema: {type: object, required: [a], properties: {a: {type: string}, b: {type: string, nullable: true}}}}}
");
    assert_eq!(sent(&import, &json!({})), "PATCH /a");
    assert_eq!(
        sent(&import, &json!({"a": "1", "b": null})),
        r#"PATCH /a | content-type: application/merge-patch+json | json {"a":"1","b":null}"#
    );
    assert_eq!(request(&import, &json!({"b": "x"})).unwrap_err().field.as_deref(), Some("/a"));
}

#[test]
fn bodies_that_cannot_be_flat_stay_one_argument() {
    let body = |schema: &str| {
        v3(&format!(
            "  /a:\n    post:\n      requestBody: {{required: true, content: {{application/json: {{schema: {schema}}}}}}}\n"
        ))
    };
    for (schema, value) in [
        ("{type: array, items: {type: integer}}", json!([1, 2])),
        ("{type: string}", json!("x")),
        ("{type: object, additionalProperties: {type: integer}}", json!({"k": 1})),
        (
            "{oneOf: [{type: object, properties: {a: {type: string}}, required: [a]}, {type: integer}]}",
            json!({"a": "x"}),
        ),
        ("{}", json!([null])),
    ] {
        let import = body(schema);
        assert_eq!(sent(&import, &json!({"body": value})), format!("POST /a | json {value}"), "{schema}");
        assert_eq!(only(&import).0.input_schema, only(&import).0.wire_schema, "{schema}");
    }
}

#[test]
fn an_open_body_takes_further_members_and_alternatives_of_required_members_validate() {
    let import = v3(r"
  /a/{id}:
    post:
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              properties: {x: {type: string}, y: {type: string}}
              additionalProperties: {type: integer}
              anyOf: [{required: [x]}, {required: [y]}]
");
    assert_eq!(
        sent(&import, &json!({"id": "1", "x": "a", "more": 2})),
        r#"POST /a/1 | json {"x":"a","more":2}"#
    );
    let tool = &only(&import).0;
    let check = |args: Value| Validators::default().check(&tool.input_schema, &args).unwrap().len();
    assert_eq!((check(json!({"id": "1"})), check(json!({"id": "1", "x": "", "more": "text"}))), (1, 1));
    let wire = tool.wire_schema.value();
    assert!(wire.get("anyOf").is_none());
    assert_eq!(wire["description"], "Give at least one of: `x`; `y`.");
}

#[test]
fn forms_follow_their_encoding() {
    let import = v3(r"
  /a:
    post:
      requestBody:
        required: true
        content:
          application/x-www-form-urlencoded:
            encoding: {deep: {style: deepObject, explode: true}, csv: {explode: false}}
            schema:
              type: object
              properties:
                t: {type: string}
                many: {type: array, items: {type: integer}}
                csv: {type: array, items: {type: string}}
                deep: {type: object, additionalProperties: true}
                plain: {type: object, additionalProperties: true}
");
    let args =
        json!({"t": "a&b", "many": [1, 2], "csv": ["x", "y"], "deep": {"k": {"l": true}}, "plain": {"k": 1}});
    assert_eq!(
        sent(&import, &args),
        r#"POST /a | form t=a&b&many=1&many=2&csv=x,y&deep[k][l]=true&plain={"k":1}"#
    );
}

#[test]
fn multipart_takes_files_as_text_or_base64() {
    let import = v3(r"
  /a:
    post:
      requestBody:
        required: true
        content:
          multipart/form-data:
            encoding: {meta: {contentType: application/json}, photo: {contentType: image/png}}
            schema:
              type: object
              required: [photo]
              properties:
                photo: {type: string, format: binary, description: A photo.}
                files: {type: array, items: {type: string, format: binary}}
                meta: {type: object, properties: {a: {type: integer}}}
                n: {type: integer}
");
    let args = json!({"photo": {"base64": "aGk", "filename": "p.png"}, "files": [{"text": "1"}, {"text": "2"}], "meta": {"a": 1}, "n": 5});
    assert_eq!(
        sent(&import, &args),
        r#"POST /a | parts photo("p.png","image/png")=hi; files("files","application/octet-stream")=1; files("files","application/octet-stream")=2; meta(None,"application/json")={"a":1}; n(None,None)=5"#
    );
    assert_eq!(schema(&import)["properties"]["photo"]["description"], "A photo.");
    for bad in [
        json!({"base64": "*"}),
        json!({"text": "x", "filename": "a\r\nb"}),
        json!({"text": "x", "content_type": "a/b\r\nc: d"}),
    ] {
        let err = request(&import, &json!({"photo": bad})).unwrap_err();
        assert_eq!(err.field.as_deref(), Some("/photo"));
    }
}

#[test]
fn raw_bodies_are_text_or_base64() {
    let raw = |kind: &str| {
        v3(&format!(
            "  /a:\n    post:\n      requestBody: {{required: true, content: {{{kind}: {{schema: {{type: string, format: binary}}}}}}}}\n"
        ))
    };
    assert_eq!(sent(&raw("application/xml"), &json!({"body": "<a/>"})), "POST /a | raw application/xml <a/>");
    let bytes = raw("application/octet-stream");
    assert_eq!(sent(&bytes, &json!({"body_base64": "aGk="})), "POST /a | raw application/octet-stream hi");
    assert_eq!(sent(&bytes, &json!({"body": "x"})), "POST /a | raw application/octet-stream x");
    let tool = &only(&bytes).0;
    assert_eq!(Validators::default().check(&tool.input_schema, &json!({})).unwrap().len(), 1);
    assert_eq!(
        sent(&raw("image/*"), &json!({"body_base64": "aGk="})),
        "POST /a | raw application/octet-stream hi"
    );
    assert_eq!(sent(&raw("'*/*'"), &json!({"body": "x"})), "POST /a | raw application/octet-stream x");
}

#[test]
fn swagger_2_has_forms_files_and_collection_formats() {
    let import = load(
        r"
swagger: '2.0'
host: h
basePath: /v1
consumes: [application/json]
produces: [application/json]
securityDefinitions: {key: {type: apiKey, in: query, name: api_key}}
parameters: {page: {name: page, in: query, type: integer, minimum: 0, exclusiveMinimum: true}}
paths:
  /a/{id}:
    put:
      operationId: up load
      parameters:
        - {name: id, in: path, required: true, type: integer}
        - {name: api_key, in: query, type: string, required: true}
        - $ref: '#/parameters/page'
        - {name: m, in: query, type: array, items: {type: string}, collectionFormat: multi}
        - {name: c, in: query, type: array, items: {type: string}}
        - {name: s, in: query, type: array, items: {type: string}, collectionFormat: ssv}
        - {name: t, in: formData, type: array, items: {type: string}, collectionFormat: pipes}
        - {name: file, in: formData, type: file, required: true}
",
    );
    let args = json!({"id": 5, "page": 1, "m": ["1", "2"], "c": ["1", "2"], "s": ["1", "2"], "t": ["1", "2"], "file": {"text": "x"}});
    assert_eq!(
        sent(&import, &args),
        r#"PUT /a/5?page=1&m=1&m=2&c=1,2&s=1 2 | accept: application/json | parts t(None,None)=1|2; file("file","application/octet-stream")=x"#
    );
    assert_eq!(schema(&import)["properties"]["page"], json!({"type": "integer", "exclusiveMinimum": 0}));
    assert_eq!(import.base_url.as_deref(), Some("https://h/v1"));
    assert_eq!(import.security[0].kind, SchemeKind::ApiKey(CredentialPlace::new(Location::Query, "api_key")));
    assert_eq!(only(&import).0.id.as_str(), "u.up_load");
}

#[test]
fn swagger_2_bodies_are_read() {
    let import = load(
        r"
swagger: '2.0'
host: h
definitions: {P: {type: object, required: [n], properties: {n: {type: string, x-nullable: true}, id: {type: integer, readOnly: true}}}}
paths: {/p: {post: {parameters: [{name: p, in: body, required: true, schema: {$ref: '#/definitions/P'}}]}}}
",
    );
    assert_eq!(sent(&import, &json!({"n": null})), r#"POST /p | json {"n":null}"#);
    assert_eq!(schema(&import)["properties"], json!({"n": {"type": ["string", "null"]}}));
}

const RINGS: &str = r"
openapi: 3.0.0
servers: [{url: 'https://h'}]
components:
  schemas:
    Node:
      type: object
      description: A node.
      required: [id, name, kind]
      properties:
        id: {type: integer, readOnly: true}
        name: {type: string, example: root}
        kind: {$ref: '#/components/schemas/Kind'}
        next: {$ref: '#/components/schemas/Node'}
        other: {nullable: true, allOf: [{$ref: '#/components/schemas/Other'}]}
        list: {type: array, items: {$ref: '#/components/schemas/Other'}}
    Other:
      allOf:
        - $ref: '#/components/schemas/Base'
        - {type: object, required: [o], properties: {o: {type: number, minimum: 1, exclusiveMinimum: true}, b: {maxLength: 3}}}
    Base: {type: object, properties: {b: {type: string}, up: {$ref: '#/components/schemas/Node'}}}
    Kind: {type: string, enum: [a, b], nullable: true}
    Unused: {type: object}
paths: {/n: {post: {operationId: n, requestBody: {required: true, content: {application/json: {schema: {$ref: '#/components/schemas/Node'}}}}}}}
";

#[test]
fn rings_are_definitions_and_all_of_is_folded() {
    let schema = schema(&load(RINGS));
    assert_eq!(schema["required"], json!(["name", "kind"]));
    let properties = json!({
        "name": {"type": "string", "examples": ["root"]},
        "kind": {"type": ["string", "null"], "enum": ["a", "b", null]},
        "next": {"$ref": "#/$defs/Node"},
        "other": {"anyOf": [{"$ref": "#/$defs/Other"}, {"type": "null"}]},
        "list": {"type": "array", "items": {"$ref": "#/$defs/Other"}}
    });
    assert_eq!(schema["properties"], properties);
    let names: Vec<&String> = schema["$defs"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["Node", "Other"], "only what is reached");
    let other = json!({
        "type": "object",
        "properties": {
            "b": {"allOf": [{"type": "string"}, {"maxLength": 3}]},
            "up": {"$ref": "#/$defs/Node"},
            "o": {"type": "number", "exclusiveMinimum": 1}
        },
        "required": ["o"]
    });
    assert_eq!(schema["$defs"]["Other"], other);
    let check =
        |args: Value| Validators::default().check(&only(&load(RINGS)).0.input_schema, &args).unwrap().len();
    assert_eq!(
        check(json!({"name": "n", "kind": null, "next": {"name": "m", "kind": "a"}, "other": null})),
        0
    );
    assert_eq!(check(json!({"name": "n", "kind": "c", "next": {"kind": "a"}, "list": [{"o": 1}]})), 3);
}

#[test]
fn keywords_of_3_1_and_misspelt_ones_are_read() {
    let import = load(
        r"
openapi: 3.1.0
servers: [{url: /}, {url: 'http://h'}]
paths:
  /a:
    post:
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              required: true
              properties:
                a: {type: [string, 'null'], examples: [x, y], pattern: '^a(?=b)'}
                b: {type: float, maximum: '10', minLength: -1, enum: []}
                c: {type: array}
                d: {const: 5, $ref: '#/components/schemas/D', description: Beside.}
                e: {type: array, items: [{type: string}]}
                f: {type: array, prefixItems: [{type: integer}], items: false}
                g: {$ref: 'https://example.com/x.json'}
                h: {exclusiveMinimum: 3, unknown: 1, x-y: 2, $id: 'http://h/x', discriminator: {propertyName: k, mapping: {a: '#/a', b: '#/b'}}, oneOf: [{type: object}, {type: integer}]}
components: {schemas: {D: {type: object}}}
",
    );
    let expected = json!({
        "a": {"type": ["string", "null"], "examples": ["x"]},
        "b": {"type": "number", "maximum": 10},
        "c": {"type": "array", "items": {}},
        "d": {"$ref": "#/$defs/D", "description": "Beside.", "const": 5},
        "e": {"type": "array", "prefixItems": [{"type": "string"}]},
        "f": {"type": "array", "items": false, "prefixItems": [{"type": "integer"}]},
        "g": {"description": "(the document does not say what this is)"},
        "h": {"description": "`k` selects the variant: a, b.", "exclusiveMinimum": 3, "oneOf": [{"type": "object"}, {"type": "integer"}]}
    });
    assert_eq!(schema(&import)["properties"], expected);
    let notes: Vec<&str> = import.diagnostics.0.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes.iter().any(|n| n.contains("never fetched")) && notes.iter().any(|n| n.contains("^a(?=b)")));
}

#[test]
fn one_bad_operation_is_named_and_the_others_stand() {
    let import = v3(r"
  /a: {get: {operationId: same, tags: [t]}, post: {operationId: same, deprecated: true}, x-other: 1, put: 5}
  /b/{x}: {get: {parameters: [{$ref: '#/components/parameters/none'}]}}
  /c/../d: {get: {}}
  /e: {get: {parameters: [{name: 'a b', in: header, required: true}]}}
  /f: {get: {servers: [{url: 'https://other.example'}]}}
  /g: {$ref: '#/gone'}
  /h/{y}: {get: {summary: No id}}
");
    let names: Vec<&str> = import.tools.iter().map(|(t, _)| t.id.as_str()).collect();
    assert_eq!(names, ["u.same", "u.same_post_a", "u.get_h_y"]);
    let skipped: Vec<(&str, &str)> =
        import.skipped.iter().map(|s| (s.operation.as_str(), s.reason.as_str())).collect();
    assert_eq!(skipped.len(), 6, "{skipped:?}");
    for (operation, part) in [
        ("PUT /a", "no object"),
        ("/g", "points to nothing"),
        ("GET /b/{x}", "#/components/parameters/none"),
        ("GET /c/../d", "`..`"),
        ("GET /e", "header"),
        ("GET /f", "https://other.example"),
    ] {
        assert!(skipped.iter().any(|(o, r)| *o == operation && r.contains(part)), "{operation}: {skipped:?}");
    }
    assert!(import.tools[1].0.deprecated.is_some());
    assert_eq!(&*import.tools[2].0.description, "No id");
    assert_eq!(import.tools[1].0.annotations.destructive, None);
}

#[test]
fn filters_leave_out_and_say_so() {
    let mut options = options();
    options.include = Filter::new(&[], &["get".to_owned()], &["/a/**".to_owned()], &[]).unwrap();
    options.exclude = Filter::new(&["old".to_owned()], &[], &[], &[]).unwrap();
    let document = "openapi: 3.0.0\npaths:\n  /a/b: {get: {operationId: x}, post: {}}\n  /a/c: {get: {tags: [Old]}}\n  /d: {get: {}}\n";
    let import = import(document.as_bytes(), "a.yaml", &|_| Err(String::new()), &options).unwrap();
    assert_eq!(import.tools.len(), 1);
    assert!(import.skipped.len() == 3 && import.skipped.iter().all(|s| s.filtered));
}

#[test]
fn addresses_of_operations_below_one_origin_are_kept() {
    let import = v3(r"
  /a: {get: {operationId: a}}
  /b: {get: {operationId: b, servers: [{url: 'https://h/v2/'}]}}
");
    assert_eq!(import.base_url.as_deref(), Some("https://h"));
    let paths: Vec<String> =
        import.tools.iter().map(|(_, o)| o.request(&serde_json::Map::new()).unwrap().path).collect();
    assert_eq!(paths, ["/v1/a", "/v2/b"]);
}

#[test]
fn credentials_are_no_arguments_and_no_argument_reaches_them() {
    let import = load(
        r"
openapi: 3.0.0
servers: [{url: 'https://h'}]
security: [{key: []}, {oauth: [read]}]
components:
  securitySchemes:
    key: {type: apiKey, in: query, name: key}
    oauth: {type: oauth2, flows: {clientCredentials: {tokenUrl: 'https://h/token', scopes: {write: '', read: ''}}}}
    b: {type: http, scheme: bearer}
paths:
  /a:
    get:
      parameters:
        - {name: key, in: query, required: true, schema: {type: string}}
        - {name: Authorization, in: header, required: true, schema: {type: string}}
        - {name: rest, in: query, schema: {type: object, additionalProperties: {type: string}}}
",
    );
    assert_eq!(sent(&import, &json!({"rest": {"a": "1"}})), "GET /a?a=1");
    let err = request(&import, &json!({"rest": {"key": "mine"}})).unwrap_err();
    assert!(err.code == ErrorCode::InvalidArgument && !err.message.contains("mine"), "{err}");
    let needs: Vec<&str> = only(&import).1.security().iter().flatten().map(|r| &*r.scheme).collect();
    assert_eq!(needs, ["key", "oauth"]);
    let oauth = SchemeKind::OAuth2 {
        token_url: Some("https://h/token".to_owned()),
        scopes: vec!["read".to_owned(), "write".to_owned()],
    };
    assert_eq!(import.security[1].kind, oauth);
    assert_eq!(import.security[2].kind, SchemeKind::Bearer);
}

#[test]
fn a_path_may_hold_a_query_and_a_fragment() {
    let import =
        v3("  '/x/?Action=List#Version=1': {get: {operationId: l, parameters: [{name: n, in: query}]}}\n");
    assert_eq!(sent(&import, &json!({"n": 1})), "GET /x/?Action=List&n=1");
}
