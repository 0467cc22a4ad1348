//! Planning the body of an operation: which of its media types is sent, and which arguments fill it.
//!
//! The members of an object body become arguments of their own, for models fill flat arguments best; where that
//! would change what fits (alternatives at the root, open maps), the body stays one argument.

use serde_json::{Value, json};

use super::argument::{Arguments, described};
use super::body::{Body, Coding, Field, Media, Shape, is_json};
use super::convert::Converter;
use super::document::{At, Version};
use super::merge::{Merged, is_annotation};
use super::operation::Location;
use super::parameter::{Declared, collection_format, style};

/// Members of a body that become arguments: a flat list longer than this helps nobody.
const FLAT_MEMBERS_MAX: usize = 200;

/// A body as the document describes it: its schema, media type and the rest that planning needs.
struct Described<'d> {
    schema: Option<At<'d>>,
    media: Media,
    media_type: &'d str,
    /// `encoding` of OpenAPI 3, by member.
    encoding: Option<At<'d>>,
    required: bool,
    description: Option<&'d str>,
}

/// Adds the arguments of the body and gives the binding; `None` where there is no body.
pub(super) fn plan<'d>(
    converter: &mut Converter<'d>,
    operation: At<'d>,
    declared: &[Declared<'d>],
    arguments: &mut Arguments,
) -> Result<Option<Body>, String> {
    if converter.documents.version == Version::Swagger2 {
        return Ok(swagger2(converter, operation, declared, arguments));
    }
    let Some(body) = operation.get("requestBody") else { return Ok(None) };
    let (body, _) =
        converter.documents.resolve(body).map_err(|why| format!("the body is not known: {why}"))?;
    let media = body.members("content").min_by_key(|(kind, media)| rank(kind, *media));
    let Some((media_type, entry)) = media else { return Ok(None) };
    let schema = entry.get("schema");
    let described = Described {
        schema,
        media: media_of(converter, media_type, schema),
        media_type,
        encoding: entry.get("encoding"),
        required: body.flag("required"),
        description: body.text("description"),
    };
    Ok(Some(described.plan(converter, arguments)))
}

/// JSON first, then what can be built from arguments, then what has to be written by hand.
fn rank(kind: &str, media: At<'_>) -> usize {
    let plain = kind.split(';').next().unwrap_or(kind).trim().to_ascii_lowercase();
    match plain.as_str() {
        "application/json" => 0,
        "application/merge-patch+json" => 1,
        k if is_json(k) => 2,
        "*/*" | "application/*" if media.get("schema").is_some() => 3,
        "application/x-www-form-urlencoded" => 4,
        k if k.starts_with("multipart/") => 5,
        k if k.starts_with("text/") => 6,
        _ => 7,
    }
}

fn media_of(converter: &Converter<'_>, kind: &str, schema: Option<At<'_>>) -> Media {
    let plain = kind.split(';').next().unwrap_or(kind).trim().to_ascii_lowercase();
    match plain.as_str() {
        k if is_json(k) => Media::Json(k.into()),
        "application/x-www-form-urlencoded" => Media::Form,
        k if k.starts_with("multipart/") => Media::Multipart,
        "*/*" | "application/*" if !is_text_or_file(converter, schema) => {
            Media::Json("application/json".into())
        }
        "text/*" => Media::Raw("text/plain".into()),
        k if k.contains('*') => Media::Raw("application/octet-stream".into()),
        // An object has to be written somehow, and XML is nobody's guess.
        k if !is_textual(k) && has_members(converter, schema) => Media::Json(k.into()),
        k => Media::Raw(k.into()),
    }
}

/// Whether bytes of a media type are text.
fn is_textual(kind: &str) -> bool {
    ["text/", "xml", "yaml", "csv", "json", "javascript", "graphql", "sql", "html"]
        .iter()
        .any(|k| kind.contains(k))
}

fn has_members(converter: &Converter<'_>, schema: Option<At<'_>>) -> bool {
    schema
        .and_then(|s| converter.documents.resolve(s).ok())
        .is_some_and(|(s, _)| s.get("properties").is_some_and(|p| p.value.is_object()))
}

/// Whether a schema is a plain text or bytes.
fn is_text_or_file(converter: &Converter<'_>, schema: Option<At<'_>>) -> bool {
    schema
        .and_then(|s| converter.documents.resolve(s).ok())
        .is_some_and(|(s, _)| matches!(s.text("type"), Some("string" | "file")))
}

fn swagger2<'d>(
    converter: &mut Converter<'d>,
    operation: At<'d>,
    declared: &[Declared<'d>],
    arguments: &mut Arguments,
) -> Option<Body> {
    let root = converter.documents.root();
    let holder = if operation.get("consumes").is_some() { operation } else { root };
    let consumes: Vec<&'d str> = holder.items("consumes").filter_map(|v| v.value.as_str()).collect();
    let fields: Vec<&Declared<'d>> = declared.iter().filter(|d| d.is_form_field).collect();
    if !fields.is_empty() {
        return Some(form_fields(converter, &consumes, &fields, arguments));
    }
    let body = declared.iter().find(|d| d.location == Location::Body)?;
    let schema = body.at.get("schema");
    let media_type =
        consumes.iter().copied().min_by_key(|kind| rank(kind, body.at)).unwrap_or("application/json");
    let described = Described {
        schema,
        media: media_of(converter, media_type, schema),
        media_type,
        encoding: None,
        required: body.at.flag("required"),
        description: body.at.text("description"),
    };
    Some(described.plan(converter, arguments))
}

fn form_fields<'d>(
    converter: &mut Converter<'d>,
    consumes: &[&str],
    fields: &[&Declared<'d>],
    arguments: &mut Arguments,
) -> Body {
    let files = fields.iter().any(|f| f.at.text("type") == Some("file"));
    let says = |kind: &str| consumes.iter().any(|c| c.starts_with(kind));
    let multipart = files || (says("multipart/") && !says("application/x-www-form-urlencoded"));
    let mut list = Vec::with_capacity(fields.len());
    for field in fields {
        let is_file = field.at.text("type") == Some("file");
        let schema = if is_file { file_schema() } else { converter.schema(field.at, 1) };
        let schema = described(schema, field.at.text("description"));
        let required = field.at.flag("required");
        let argument = arguments.add(field.name, Location::Body, schema, required);
        let coding = if is_file {
            Coding::File(None)
        } else if field.at.text("type") == Some("array") {
            let (style, explode) = collection_format(field.at, Location::Body);
            Coding::Style(style, explode)
        } else {
            Coding::Auto
        };
        list.push(Field { argument: argument.into(), name: field.name.into(), required, coding });
    }
    let required = list.iter().any(|f| f.required);
    let media = if multipart { Media::Multipart } else { Media::Form };
    Body { required, media, shape: Shape::Members { fields: list.into(), open: false } }
}

impl<'d> Described<'d> {
    fn plan(self, converter: &mut Converter<'d>, arguments: &mut Arguments) -> Body {
        if let Media::Raw(_) = self.media {
            return self.raw(arguments);
        }
        let target = self.schema.and_then(|s| converter.documents.resolve(s).ok()).map(|(at, _)| at);
        let merged = target.filter(|t| t.value.is_object()).map(|t| Merged::of(converter.documents, t));
        match merged {
            Some(merged) if is_flat(&merged) => self.members(converter, &merged, arguments),
            _ => self.whole(converter, merged.as_ref(), arguments),
        }
    }

    fn members(self, converter: &mut Converter<'d>, merged: &Merged<'d>, arguments: &mut Arguments) -> Body {
        let mut fields = Vec::new();
        let mut renamed = false;
        let mut known: Vec<&str> = Vec::new();
        for (name, places) in &merged.properties {
            known.push(name);
            if places.iter().any(|p| converter.is_read_only(*p)) {
                continue;
            }
            let coding = self.coding(converter, name, places);
            let is_file = matches!(coding, Coding::File(_));
            let schema = if is_file {
                described(file_schema_for(places), places.first().and_then(|p| p.text("description")))
            } else {
                converter.member(places, 1)
            };
            let required = merged.required.contains(name);
            let argument = arguments.add(name, Location::Body, schema, required && self.required);
            renamed |= argument != *name;
            fields.push(Field { argument: argument.into(), name: (*name).into(), required, coding });
        }
        // A required member that is described nowhere still has to be sent.
        for name in merged.required.iter().filter(|n| !known.contains(n)) {
            let argument = arguments.add(name, Location::Body, json!({}), self.required);
            fields.push(Field {
                argument: argument.into(),
                name: (*name).into(),
                required: true,
                coding: Coding::Auto,
            });
        }
        let open = merged.additional.is_some_and(|a| a.value != &Value::Bool(false));
        if open {
            arguments.additional = merged.additional.map(|a| converter.schema(a, 1));
        }
        if !renamed && self.required {
            for key in ["anyOf", "oneOf"] {
                let choices: Vec<Value> = merged.outer.items(key).filter_map(required_only).collect();
                if !choices.is_empty() {
                    arguments.conditions.insert(key.to_owned(), Value::Array(choices));
                }
            }
        }
        Body {
            required: self.required,
            media: self.media,
            shape: Shape::Members { fields: fields.into(), open },
        }
    }

    /// How a member is written in a form or as a part.
    fn coding(&self, converter: &Converter<'d>, name: &str, places: &[At<'d>]) -> Coding {
        if matches!(self.media, Media::Json(_)) {
            return Coding::Auto;
        }
        let encoding = self.encoding.and_then(|e| e.get(name));
        let kind =
            encoding.and_then(|e| e.text("contentType")).map(|k| k.split(',').next().unwrap_or(k).trim());
        let kind = kind.filter(|k| !k.contains('*'));
        if self.media == Media::Multipart && places.iter().any(|p| is_file(converter, *p)) {
            return Coding::File(kind.map(Into::into));
        }
        match (encoding, kind) {
            (Some(e), _) if e.get("style").is_some() || e.get("explode").is_some() => {
                let (style, explode) = style(e, Location::Body);
                Coding::Style(style, explode)
            }
            (_, Some(kind)) => Coding::Typed(kind.into()),
            _ => Coding::Auto,
        }
    }

    fn whole(
        self,
        converter: &mut Converter<'d>,
        merged: Option<&Merged<'d>>,
        arguments: &mut Arguments,
    ) -> Body {
        let mut schema = self.schema.map_or(json!({}), |s| converter.schema(s, 1));
        let is_form = !matches!(self.media, Media::Json(_));
        if is_form && schema.get("$ref").is_none() && schema.get("type").is_none() {
            // A form is an object, whatever the document forgot to say.
            if let Value::Object(map) = &mut schema {
                map.insert("type".to_owned(), Value::from("object"));
            }
        }
        let schema = described(schema, self.description);
        let name = if arguments.names.is_free("body") { "body" } else { "request_body" };
        let argument = arguments.names.give(name, "body");
        let argument = arguments.add_as(argument, schema, self.required);
        let fields: Vec<Field> = merged
            .map(|m| {
                m.properties
                    .iter()
                    .map(|(name, places)| Field {
                        argument: "".into(),
                        name: (*name).into(),
                        required: false,
                        coding: self.coding(converter, name, places),
                    })
                    .collect()
            })
            .filter(|_| is_form)
            .unwrap_or_default();
        Body {
            required: self.required,
            media: self.media,
            shape: Shape::Whole { argument: argument.into(), fields: fields.into() },
        }
    }

    fn raw(self, arguments: &mut Arguments) -> Body {
        let kind = self.media_type;
        // `byte` means that the service itself wants the base64.
        let as_base64 = self.schema.is_some_and(|s| s.text("format") == Some("byte"));
        let textual = as_base64 || is_textual(kind);
        let (name, bytes_name) = if arguments.names.is_free("body") && arguments.names.is_free("body_base64")
        {
            ("body", "body_base64")
        } else {
            ("request_body", "request_body_base64")
        };
        let say = |what: &str| {
            let own = self.description.map(|d| format!("{d} ")).unwrap_or_default();
            described(json!({"type": "string"}), Some(&format!("{own}{what} ({kind})")))
        };
        let text = arguments.names.give(name, "body");
        let what = if as_base64 { "The body in base64, sent as it is" } else { "The body as text" };
        let text = arguments.add_as(text, say(what), self.required && textual);
        let mut base64 = None;
        if !textual {
            let schema = say("The body as bytes in base64, instead of the text");
            let given = arguments.names.give(bytes_name, "body");
            let given = arguments.add_as(given, schema, false);
            if self.required {
                let choice = json!([{"required": [given]}, {"required": [text]}]);
                arguments.conditions.insert("anyOf".to_owned(), choice);
            }
            base64 = Some(given.into());
        }
        Body {
            required: self.required,
            media: self.media,
            shape: Shape::Raw { text: Some(text.into()), base64 },
        }
    }
}

/// Whether the members of a body can stand for it.
fn is_flat(merged: &Merged<'_>) -> bool {
    let says_only_members = merged.outer.object().is_some_and(|map| {
        map.iter().all(|(key, value)| match key.as_str() {
            "type" => value == "object" || value.as_array().is_some_and(|a| a.iter().any(|t| t == "object")),
            "properties" | "required" | "additionalProperties" | "allOf" | "nullable" | "x-nullable" => true,
            // Counted over members alone; the service says so itself.
            "minProperties" | "maxProperties" => true,
            "anyOf" | "oneOf" => merged.outer.items(key).all(|choice| required_only(choice).is_some()),
            key => is_annotation(key),
        })
    });
    says_only_members && merged.rest.is_empty() && (1..=FLAT_MEMBERS_MAX).contains(&merged.properties.len())
}

/// A choice that only tells which members are required.
fn required_only(choice: At<'_>) -> Option<Value> {
    let map = choice.object()?;
    let names: Vec<&str> = choice.items("required").filter_map(|v| v.value.as_str()).collect();
    let only = map.keys().all(|k| k == "required" || k == "type" || is_annotation(k));
    (only && !names.is_empty()).then(|| json!({"required": names}))
}

/// Whether a member of a multipart body is a file, or a list of files.
fn is_file(converter: &Converter<'_>, at: At<'_>) -> bool {
    let Ok((at, _)) = converter.documents.resolve(at) else { return false };
    let item = if at.text("type") == Some("array") { at.get("items") } else { Some(at) };
    let Some(Ok((item, _))) = item.map(|i| converter.documents.resolve(i)) else { return false };
    item.text("type") == Some("file")
        || item.text("format") == Some("binary")
        || item.text("contentMediaType").is_some_and(|k| k != "application/json" && !k.starts_with("text/"))
}

fn file_schema_for(places: &[At<'_>]) -> Value {
    if places.iter().any(|p| p.text("type") == Some("array")) {
        json!({"type": "array", "items": file_schema()})
    } else {
        file_schema()
    }
}

/// What a file argument looks like.
fn file_schema() -> Value {
    json!({
        "type": "object",
        "description": "A file: its content as `text` or as `base64`.",
        "properties": {
            "filename": {"type": "string"},
            "content_type": {"type": "string", "examples": ["image/png"]},
            "text": {"type": "string"},
            "base64": {"type": "string"}
        },
        "anyOf": [{"required": ["text"]}, {"required": ["base64"]}],
        "additionalProperties": false
    })
}
