//! `[[resource]]` and `[[prompt]]`: what a pack offers besides tools.
//!
//! A resource is a text, a file of the pack, or the result of a tool; a prompt is made of messages that may hold
//! any of them. Which tool a name means is settled when the catalog is built.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Reader, UpstreamConfig, read_scopes};
use crate::catalog::{PromptArgument, PromptEntry, ResourceEntry, SCHEME, Tool, UriTemplate};
use crate::diagnostic::did_you_mean;
use crate::id::Scope;
use crate::json::{JsonText, Object};
use crate::limits;
use crate::media;
use crate::projection::Template;
use crate::schema::SchemaText;
use crate::settings::{Located, Section};

/// Bytes of a name in a subject's id: with the upstream's own it stays within what an id may have.
const SUBJECT_NAME_BYTES: usize = 100;

/// Who may use an offer, besides what the upstream says of all.
#[derive(Debug, Clone, Default)]
pub struct OfferAccess {
    /// Its category.
    pub category: Option<Arc<str>>,
    /// Labels besides the upstream's.
    pub tags: Vec<Arc<str>>,
    /// The tier that a caller needs.
    pub tier: Option<Arc<str>>,
    /// Scopes that a caller needs, instead of the upstream's.
    pub scopes: Option<Vec<Scope>>,
}

/// A set of values that docent knows itself, for completion. Of each a caller is told only what it may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownValues {
    /// Tools by id and by wire name.
    Tools,
    /// Categories of tools.
    Categories,
    /// Upstreams.
    Upstreams,
    /// The caller's files.
    Files,
    /// The caller's jobs.
    Jobs,
    /// The caller's kept results.
    Results,
}

/// The values that an argument or a variable is completed with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Values {
    /// Nobody said.
    #[default]
    Any,
    /// One of these.
    Fixed(Vec<Arc<str>>),
    /// One of what docent knows.
    Known(KnownValues),
}

/// A call of a tool whose result stands for a resource or a part of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct BackingCall {
    /// The tool: its name in this pack, or any tool's id.
    pub tool: Arc<str>,
    /// Its arguments; every text in them is a template over variables or prompt arguments.
    pub arguments: Object,
    /// Which part of the structured result, as a JSON Pointer; the whole where empty.
    pub pointer: Arc<str>,
}

/// What a resource of a pack holds.
#[derive(Debug, Clone, PartialEq)]
pub enum ResourceSource {
    /// A text; of a template, with its variables put in.
    Text(Template),
    /// Bytes of a file of the pack, as they are.
    Bytes(Bytes),
    /// What a tool answers.
    Tool(BackingCall),
}

/// One `[[resource]]`.
#[derive(Debug, Clone)]
pub struct ResourceConfig {
    /// As it is listed.
    pub entry: ResourceEntry,
    /// The template, where the address has variables.
    pub template: Option<UriTemplate>,
    /// What it holds.
    pub source: ResourceSource,
    /// Values of its variables.
    pub values: BTreeMap<String, Values>,
    /// Who may use it.
    pub access: OfferAccess,
    /// Where its table stands.
    pub offset: usize,
}

/// Who says a message of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// The person.
    #[default]
    User,
    /// The model.
    Assistant,
}

/// What a message of a prompt holds.
#[derive(Debug, Clone, PartialEq)]
pub enum PromptPart {
    /// A text with the arguments put in.
    Text(Template),
    /// A resource of this server by its address.
    Resource(Template),
    /// An image of the pack, in base64.
    Image {
        /// Its media type.
        mime: Arc<str>,
        /// The bytes in base64.
        data: Arc<str>,
    },
    /// What a tool answers, fenced as data.
    Tool(BackingCall),
}

/// One `[[prompt]]`.
#[derive(Debug, Clone)]
pub struct PromptConfig {
    /// As it is listed; its name is the one in this pack.
    pub entry: PromptEntry,
    /// Its messages.
    pub messages: Vec<(Role, PromptPart)>,
    /// Values of its arguments.
    pub values: BTreeMap<String, Values>,
    /// Who may use it.
    pub access: OfferAccess,
    /// Where its table stands.
    pub offset: usize,
}

fn text(section: &mut Section, key: &str) -> Option<Arc<str>> {
    section.string(key).map(|t| Arc::from(t.value))
}

/// The label that every resource has for policies, besides its own.
pub const RESOURCE_TAG: &str = "resource";
/// The label that every prompt has for policies, besides its own.
pub const PROMPT_TAG: &str = "prompt";

impl UpstreamConfig {
    /// What policies decide on when an offer is used: it has an id, labels and needs like a tool, and only reads.
    /// Nothing where no id can be made of the name.
    pub fn offer_subject(&self, tag: &str, name: &str, access: &OfferAccess) -> Option<Tool> {
        let id = self.tool_id(&format!("{tag}.{}", crate::json::cut(name, SUBJECT_NAME_BYTES)))?;
        let mut subject = Tool::new(id, self.id.clone(), name, SchemaText::empty_object());
        let defaults = &self.defaults;
        let tags = [Arc::from(tag)].into_iter().chain(defaults.tags.iter().chain(&access.tags).cloned());
        subject.tags = tags.collect::<Vec<_>>().into();
        subject.category = access.category.clone().or_else(|| defaults.category.clone()).unwrap_or_default();
        subject.tier = access.tier.clone().or_else(|| defaults.tier.clone());
        subject.scopes = Arc::from(access.scopes.as_deref().unwrap_or(&defaults.scopes));
        subject.facts = Arc::new(defaults.facts.clone());
        subject.annotations.read_only = Some(true);
        Some(subject)
    }
}

impl OfferAccess {
    fn read(section: &mut Section) -> Self {
        Self {
            category: text(section, "category"),
            tags: section.plain_strings("tags").into_iter().map(Arc::from).collect(),
            tier: text(section, "tier"),
            scopes: read_scopes(section),
        }
    }
}

impl Values {
    const KNOWN: [(&'static str, KnownValues); 6] = [
        ("tools", KnownValues::Tools),
        ("categories", KnownValues::Categories),
        ("upstreams", KnownValues::Upstreams),
        ("files", KnownValues::Files),
        ("jobs", KnownValues::Jobs),
        ("results", KnownValues::Results),
    ];

    fn read(section: &mut Section) -> Self {
        let fixed = section.strings("values");
        let known = section.one_of("values_from", &Self::KNOWN);
        match (fixed, known) {
            (Some(_), Some(_)) => {
                let message = "both `values` and `values_from`";
                section.error(section.offset(), "offer-values", message, "keep one of them");
                Self::Any
            }
            (Some(fixed), None) => Self::Fixed(fixed.into_iter().map(|t| Arc::from(t.value)).collect()),
            (None, Some(known)) => Self::Known(known),
            (None, None) => Self::Any,
        }
    }
}

impl ResourceConfig {
    pub(super) fn read(section: &mut Section, reader: &mut Reader<'_>) -> Option<Self> {
        let uri = section.required_string("uri");
        let name = section.required_string("name");
        let template = address(section, &uri);
        let variables: Vec<String> =
            template.iter().flat_map(|t| t.variables().map(str::to_owned).collect::<Vec<_>>()).collect();
        let mut mime = section.string("mime").and_then(|t| media_type(section, &t));
        let held = Held::read(section, reader, "resource")?;
        let source = match held {
            Held::Text(text) => {
                mime = mime.or_else(|| Some(Arc::from("text/plain")));
                ResourceSource::Text(filled(section, &text, (!variables.is_empty()).then_some(&variables))?)
            }
            Held::File(name, bytes) => {
                mime = mime.or_else(|| Some(Arc::from(media::of_name(&name))));
                ResourceSource::Bytes(bytes)
            }
            Held::Tool(call) => ResourceSource::Tool(checked(section, call, &variables)?),
        };
        let size = match &source {
            ResourceSource::Bytes(bytes) => u64::try_from(bytes.len()).ok(),
            _ => None,
        };
        let entry = ResourceEntry {
            uri: Arc::from(uri.value),
            name: Arc::from(name.value),
            title: text(section, "title"),
            description: text(section, "description"),
            mime,
            size,
            annotations: annotations(section),
        };
        let mut values = BTreeMap::new();
        for (name, mut own) in section.named_sections("variables") {
            let found = Values::read(&mut own);
            if known(section, &name.value, name.offset, &variables) {
                values.insert(name.value, found);
            }
        }
        let (access, offset) = (OfferAccess::read(section), section.offset());
        let template = template.filter(|_| !variables.is_empty());
        let complete = !entry.uri.is_empty() && !entry.name.is_empty();
        complete.then_some(Self { entry, template, source, values, access, offset })
    }
}

/// The address of a resource: absolute, not of docent's own, with variables or without.
fn address(section: &Section, uri: &Located<String>) -> Option<UriTemplate> {
    if uri.value.is_empty() {
        return None;
    }
    let scheme = uri.value.split_once(':').map(|(scheme, _)| scheme);
    let named = |s: &str| {
        s.starts_with(|c: char| c.is_ascii_alphabetic())
            && s.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let refuse = |why: String| {
        let help = "write an absolute address such as \"shop://orders/{id}\"";
        section.error(uri.offset, "bad-uri", why, help);
        None
    };
    match scheme {
        Some(s) if s.eq_ignore_ascii_case(SCHEME) => {
            refuse(format!("the scheme `{SCHEME}:` is docent's own"))
        }
        Some(s) if named(s) => {
            if uri.value.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return refuse("an address has no blanks".to_owned());
            }
            UriTemplate::parse(&uri.value)
                .map_or_else(|why| refuse(format!("the address is no template: {why}")), Some)
        }
        _ => refuse("the address has no scheme".to_owned()),
    }
}

fn media_type(section: &Section, text: &Located<String>) -> Option<Arc<str>> {
    let found = media::essence(&text.value).map(Arc::from);
    if found.is_none() {
        let message = format!("`{}` is no media type", text.value);
        section.error(text.offset, "bad-mime", message, "write one like \"text/markdown\"");
    }
    found
}

/// `annotations = { audience = ["user"], priority = 0.5 }` (MCP, annotations).
fn annotations(section: &mut Section) -> Option<JsonText> {
    let mut own = section.section("annotations")?;
    let mut out = Object::new();
    if let Some(audience) = own.strings("audience") {
        for word in audience.iter().filter(|w| !matches!(w.value.as_str(), "user" | "assistant")) {
            let message = format!("`{}` is no audience", word.value);
            own.error(word.offset, "unknown-value", message, "one of \"user\", \"assistant\"");
        }
        out.insert("audience".to_owned(), audience.into_iter().map(|w| Value::from(w.value)).collect());
    }
    if let Some(priority) = own.number("priority") {
        out.insert("priority".to_owned(), json!(priority.clamp(0.0, 1.0)));
    }
    Some(JsonText::of(&Value::Object(out)))
}

/// Whether a variable or an argument is one that was declared; else it is reported.
fn known(section: &Section, name: &str, offset: usize, names: &[String]) -> bool {
    if names.iter().any(|n| n == name) {
        return true;
    }
    let help = match did_you_mean(name, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => "none are declared here; a literal brace is `{{`".to_owned(),
        None => format!("declared here: {}", names.join(", ")),
    };
    section.error(offset, "unknown-argument", format!("`{name}` is not declared here"), help);
    false
}

/// A text as a template over declared names; `None` for the names takes the text literally.
fn filled(section: &Section, text: &Located<String>, names: Option<&Vec<String>>) -> Option<Template> {
    let Some(names) = names else { return Some(Template::literal(&text.value)) };
    match Template::parse(&text.value) {
        Ok(template) => {
            let all = template.arguments().all(|n| known(section, n, text.offset, names));
            all.then_some(template)
        }
        Err((_, why)) => {
            section.error(
                text.offset,
                "bad-template",
                why,
                "placeholders are `{name}`, braces `{{` and `}}`",
            );
            None
        }
    }
}

/// What `text`, `file` or `tool` names: exactly one of them.
enum Held {
    Text(Located<String>),
    File(String, Bytes),
    Tool((BackingCall, usize)),
}

impl Held {
    fn read(section: &mut Section, reader: &mut Reader<'_>, what: &str) -> Option<Self> {
        let keys = ["text", "file", "tool"];
        let there: Vec<&str> = keys.into_iter().filter(|k| section.has(k)).collect();
        let &[key] = there.as_slice() else {
            for key in keys {
                drop(section.json(key));
            }
            let found = if there.is_empty() { "nothing".to_owned() } else { there.join(" and ") };
            let message = format!("a {what} holds one of `text`, `file` and `tool`, found {found}");
            section.error(section.offset(), "offer-source", message, "keep one of them");
            return None;
        };
        let named = section.string(key)?;
        match key {
            "text" => Some(Self::Text(named)),
            "file" => {
                let path = reader.file(section, &named, limits::OFFER_FILE_BYTES_MAX)?;
                let bytes = crate::json::read_capped(&path, limits::OFFER_FILE_BYTES_MAX).ok()?;
                Some(Self::File(named.value, Bytes::from(bytes)))
            }
            _ => {
                let arguments = section.object("arguments").unwrap_or_default();
                let pointer = text(section, "pointer").unwrap_or_default();
                if !pointer.is_empty() && !pointer.starts_with('/') {
                    let message = "`pointer` is no JSON Pointer";
                    section.error(
                        named.offset,
                        "bad-pointer",
                        message,
                        "write one like \"/data/0\" (RFC 6901)",
                    );
                }
                let call = BackingCall { tool: Arc::from(named.value), arguments, pointer };
                Some(Self::Tool((call, named.offset)))
            }
        }
    }
}

/// The call, if every placeholder in its arguments is declared.
fn checked(section: &Section, (call, offset): (BackingCall, usize), names: &[String]) -> Option<BackingCall> {
    fn texts<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
        match value {
            Value::String(text) => out.push(text),
            Value::Array(items) => items.iter().for_each(|v| texts(v, out)),
            Value::Object(map) => map.values().for_each(|v| texts(v, out)),
            _ => {}
        }
    }
    let mut all = Vec::new();
    call.arguments.values().for_each(|v| texts(v, &mut all));
    let names = names.to_vec();
    let fine = all
        .into_iter()
        .all(|text| filled(section, &Located { value: text.to_owned(), offset }, Some(&names)).is_some());
    fine.then_some(call)
}

impl PromptConfig {
    pub(super) fn read(section: &mut Section, reader: &mut Reader<'_>) -> Option<Self> {
        let name = section.required_string("id");
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !name.value.chars().all(named) {
            let message = format!("`{}` is no name of a prompt", name.value);
            section.error(name.offset, "bad-id", message, "letters, digits and `_ - .`");
            return None;
        }
        let mut arguments = Vec::new();
        let mut values = BTreeMap::new();
        for mut own in section.sections("argument") {
            let name = own.required_string("name");
            arguments.push(PromptArgument {
                name: Arc::from(name.value.as_str()),
                title: text(&mut own, "title"),
                description: text(&mut own, "description"),
                required: own.boolean("required").unwrap_or(false),
            });
            values.insert(name.value, Values::read(&mut own));
        }
        let names: Vec<String> = arguments.iter().map(|a| a.name.as_ref().to_owned()).collect();
        let mut messages = Vec::new();
        let parts = section.sections("message");
        if parts.is_empty() {
            messages.push((Role::User, message(section, reader, &names)?));
        }
        for mut own in parts {
            let roles = [("user", Role::User), ("assistant", Role::Assistant)];
            let role = own.one_of("role", &roles).unwrap_or_default();
            messages.push((role, message(&mut own, reader, &names)?));
        }
        let entry = PromptEntry {
            name: Arc::from(name.value.as_str()),
            title: text(section, "title"),
            description: text(section, "description"),
            arguments,
        };
        let (access, offset) = (OfferAccess::read(section), section.offset());
        (!name.value.is_empty()).then_some(Self { entry, messages, values, access, offset })
    }
}

/// One message: `text`, `file`, `tool`, `resource` or `image`.
fn message(section: &mut Section, reader: &mut Reader<'_>, names: &[String]) -> Option<PromptPart> {
    if let Some(uri) = section.string("resource") {
        return filled(section, &uri, Some(&names.to_vec())).map(PromptPart::Resource);
    }
    if let Some(name) = section.string("image") {
        let mime = media::of_name(&name.value);
        if !mime.starts_with("image/") {
            let message = format!("`{}` has no ending of an image", name.value);
            section.error(name.offset, "bad-image", message, "name a .png, .jpg, .gif, .webp or .svg file");
            return None;
        }
        let path = reader.file(section, &name, limits::OFFER_FILE_BYTES_MAX)?;
        let bytes = crate::json::read_capped(&path, limits::OFFER_FILE_BYTES_MAX).ok()?;
        let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
        return Some(PromptPart::Image { mime: Arc::from(mime), data: Arc::from(data) });
    }
    match Held::read(section, reader, "message")? {
        Held::Text(text) => filled(section, &text, Some(&names.to_vec())).map(PromptPart::Text),
        Held::Tool(call) => checked(section, call, names).map(PromptPart::Tool),
        Held::File(name, bytes) => match String::from_utf8(bytes.into()) {
            Ok(text) => {
                let text = Located { value: text, offset: section.offset() };
                filled(section, &text, Some(&names.to_vec())).map(PromptPart::Text)
            }
            Err(_) => {
                let message = format!("`{name}` is not UTF-8 text");
                section.error(section.offset(), "unreadable-file", message, "name a text, or use `image`");
                None
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::UpstreamConfig;
    use crate::diagnostic::{Diagnostics, SourceFile};
    use crate::secret::Resolver;

    fn read(text: &str) -> (Option<UpstreamConfig>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let pack = dir.path().join("shop");
        std::fs::create_dir_all(&pack).unwrap();
        std::fs::write(pack.join("note.md"), "# Note").unwrap();
        std::fs::write(pack.join("dot.png"), [1, 2, 3]).unwrap();
        let file = SourceFile::new("scripts/shop/upstream.toml", format!("kind = \"script\"\n{text}"));
        let mut found = Diagnostics::default();
        let resolver = Resolver::new(|_| None);
        let config = UpstreamConfig::read(&file, &pack, &resolver, &std::sync::Arc::default(), &mut found);
        (config, found.0.into_iter().map(|d| format!("{} {}", d.code, d.message)).collect())
    }

    #[test]
    fn resources_and_prompts_are_read() {
        let (config, found) = read(
            "[[resource]]\nuri = \"shop://note\"\nname = \"note\"\nfile = \"note.md\"\n\
             [[resource]]\nuri = \"shop://order/{id}\"\nname = \"order\"\ntool = \"order\"\narguments = { id = \"{id}\" }\n\
             [resource.variables.id]\nvalues = [\"1\", \"2\"]\n\
             [[prompt]]\nid = \"ask\"\n[[prompt.argument]]\nname = \"what\"\nrequired = true\n\
             [[prompt.message]]\ntext = \"Ask {what}\"\n[[prompt.message]]\nrole = \"assistant\"\nimage = \"dot.png\"\n",
        );
        assert_eq!(found, Vec::<String>::new());
        let config = config.unwrap();
        assert_eq!(config.resources.len(), 2);
        assert_eq!(config.resources[0].entry.mime.as_deref(), Some("text/markdown"));
        assert_eq!(config.resources[0].entry.size, Some(6));
        assert!(config.resources[1].template.is_some() && config.resources[0].template.is_none());
        assert_eq!(config.prompts[0].messages.len(), 2);
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let (_, found) = read(
            "[[resource]]\nuri = \"docent://x\"\nname = \"a\"\ntext = \"t\"\n\
             [[resource]]\nuri = \"nothing\"\nname = \"b\"\ntext = \"t\"\nfile = \"note.md\"\n\
             [[resource]]\nuri = \"s://{a}{b}\"\nname = \"c\"\ntext = \"t\"\n\
             [[resource]]\nuri = \"s://{id}\"\nname = \"d\"\ntool = \"x\"\narguments = { q = \"{di}\" }\n\
             [[prompt]]\nid = \"p\"\ntext = \"{what}\"\n[[prompt]]\nid = \"q\"\nimage = \"note.md\"\n",
        );
        let codes: Vec<&str> = found.iter().map(|m| m.split(' ').next().unwrap()).collect();
        let expected = [
            "bad-uri",
            "bad-uri",
            "offer-source",
            "bad-uri",
            "unknown-argument",
            "unknown-argument",
            "bad-image",
        ];
        assert_eq!(codes, expected, "{found:?}");
    }
}
