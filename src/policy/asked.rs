//! Questions about a field instead of its value. `tool.id == "a.b"` has two answers for ten thousand tools
//! where `tool.id` has ten thousand, and an answer of a policy is kept per values that it read (`column`). So
//! where a policy file only ever asks about a field, the field is a view that answers and writes down the
//! question; where it holds the value anywhere in the file (`let id = tool.id`, `switch tool.id`), all of the
//! file gets the value. Either way every expression comes to the same.

use std::sync::Arc;

use super::glob;
use super::views::{CallerRead, CallerView, ToolRead, ToolView};
use crate::catalog::Tool;
use crate::script::{Asking, Dynamic, EngineBuilder, Script};

/// A text of the tool that can be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum TextField {
    Id,
    Name,
    Upstream,
    Category,
}

impl TextField {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Name => "name",
            Self::Upstream => "upstream",
            Self::Category => "category",
        }
    }

    pub(super) fn text(self, tool: &Tool) -> &str {
        match self {
            Self::Id => tool.id.as_str(),
            Self::Name => &tool.name,
            Self::Upstream => tool.upstream.as_str(),
            Self::Category => &tool.category,
        }
    }
}

/// A question about a text, with another text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Asked {
    Equal,
    StartsWith,
    EndsWith,
    Contains,
    Glob,
}

impl Asked {
    pub(super) fn of(self, text: &str, with: &str) -> bool {
        match self {
            Self::Equal => text == with,
            Self::StartsWith => text.starts_with(with),
            Self::EndsWith => text.ends_with(with),
            Self::Contains => text.contains(with),
            Self::Glob => glob::matches(with, text),
        }
    }
}

const TEXT_FIELDS: [&str; 5] = ["id", "name", "upstream", "category", "subject"];
/// Every form that [`register`] answers for a [`TextView`].
const TEXT_QUESTIONS: [Asking; 8] = [
    ("==", 0),
    ("==", 1),
    ("!=", 0),
    ("!=", 1),
    ("starts_with", 0),
    ("ends_with", 0),
    ("contains", 0),
    ("glob", 1),
];
const LIST_FIELDS: [&str; 2] = ["tags", "scopes"];
/// Every form that [`register`] answers for a [`ListView`]: `in` and its method.
const LIST_QUESTIONS: [Asking; 1] = [("contains", 0)];

/// Which fields a policy file only asks about, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lazy(u8);

impl Lazy {
    pub(super) fn of(script: &Script) -> Self {
        let mut asked = script.only_asked(&TEXT_FIELDS, &TEXT_QUESTIONS);
        asked.extend(script.only_asked(&LIST_FIELDS, &LIST_QUESTIONS));
        Self(asked.iter().fold(0, |bits, name| bits | bit(name)))
    }

    pub(super) fn covers(self, field: &str) -> bool {
        self.0 & bit(field) != 0
    }
}

/// The bit of a field; none for a field that is always read whole.
fn bit(field: &str) -> u8 {
    let at = TEXT_FIELDS.iter().chain(&LIST_FIELDS).position(|f| *f == field);
    at.and_then(|at| u32::try_from(at).ok()).and_then(|at| 1u8.checked_shl(at)).unwrap_or(0)
}

/// A text that answers questions.
#[derive(Debug, Clone)]
enum TextView {
    Tool(ToolView, TextField),
    Subject(CallerView),
}

/// A list of texts that answers questions.
#[derive(Debug, Clone)]
enum ListView {
    Tags(ToolView),
    ToolScopes(ToolView),
    CallerScopes(CallerView),
}

impl ToolView {
    /// One of its texts: the text, or a view where the file only asks about it.
    pub(super) fn text(&self, field: TextField) -> Dynamic {
        if self.log.lazy.covers(field.name()) {
            Dynamic::from(TextView::Tool(self.clone(), field))
        } else {
            self.read(ToolRead::Text(field))
        }
    }

    /// Its tags, in the same way.
    pub(super) fn tags(&mut self) -> Dynamic {
        if self.log.lazy.covers("tags") {
            Dynamic::from(ListView::Tags(self.clone()))
        } else {
            self.read(ToolRead::Tags)
        }
    }

    /// The scopes it asks for, in the same way.
    pub(super) fn scopes(&mut self) -> Dynamic {
        if self.log.lazy.covers("scopes") {
            Dynamic::from(ListView::ToolScopes(self.clone()))
        } else {
            self.read(ToolRead::Scopes)
        }
    }
}

impl CallerView {
    /// Its name: the text, or a view where the file only asks about it.
    pub(super) fn subject(&mut self) -> Dynamic {
        if self.log.lazy.covers("subject") {
            Dynamic::from(TextView::Subject(self.clone()))
        } else {
            self.read(CallerRead::Subject)
        }
    }

    /// Its scopes, in the same way.
    pub(super) fn scopes(&mut self) -> Dynamic {
        if self.log.lazy.covers("scopes") {
            Dynamic::from(ListView::CallerScopes(self.clone()))
        } else {
            self.read(CallerRead::Scopes)
        }
    }
}

impl TextView {
    fn ask(&self, asked: Asked, with: &str) -> bool {
        let answer = match self {
            Self::Tool(tool, TextField::Id) if asked == Asked::Glob => {
                tool.read(ToolRead::Matches(Arc::from(with)))
            }
            Self::Tool(tool, field) => tool.read(ToolRead::Is(*field, asked, Arc::from(with))),
            Self::Subject(caller) => caller.read(CallerRead::SubjectIs(asked, Arc::from(with))),
        };
        answer.as_bool() == Ok(true)
    }

    /// The text itself, for a comparison with another view.
    fn whole(&self) -> Dynamic {
        match self {
            Self::Tool(tool, field) => tool.read(ToolRead::Text(*field)),
            Self::Subject(caller) => caller.read(CallerRead::Subject),
        }
    }

    fn is(&self, other: &Self) -> bool {
        let other = other.whole();
        other.as_immutable_string_ref().is_ok_and(|text| self.ask(Asked::Equal, &text))
    }
}

impl ListView {
    fn has(&self, item: &str) -> bool {
        let item = Arc::from(item);
        let answer = match self {
            Self::Tags(tool) => tool.read(ToolRead::HasTag(item)),
            Self::ToolScopes(tool) => tool.read(ToolRead::HasScope(item)),
            Self::CallerScopes(caller) => caller.read(CallerRead::HasScope(item)),
        };
        answer.as_bool() == Ok(true)
    }
}

/// The questions as functions, for the views: not in the reference, because they are those of texts and lists.
pub(super) fn register(e: &mut EngineBuilder) {
    macro_rules! asks {
        ($name:literal, $asked:ident) => {
            e.silent($name, |view: &mut TextView, with: &str| view.ask(Asked::$asked, with));
            e.silent($name, |view: &mut TextView, with: char| {
                view.ask(Asked::$asked, with.encode_utf8(&mut [0; 4]))
            });
        };
    }
    asks!("==", Equal);
    asks!("starts_with", StartsWith);
    asks!("ends_with", EndsWith);
    asks!("contains", Contains);
    e.silent("!=", |view: &mut TextView, with: &str| !view.ask(Asked::Equal, with));
    e.silent("!=", |view: &mut TextView, with: char| !view.ask(Asked::Equal, with.encode_utf8(&mut [0; 4])));
    e.silent("==", |with: &str, view: TextView| view.ask(Asked::Equal, with));
    e.silent("!=", |with: &str, view: TextView| !view.ask(Asked::Equal, with));
    e.silent("==", |with: char, view: TextView| view.ask(Asked::Equal, with.encode_utf8(&mut [0; 4])));
    e.silent("!=", |with: char, view: TextView| !view.ask(Asked::Equal, with.encode_utf8(&mut [0; 4])));
    e.silent("==", |one: &mut TextView, other: TextView| one.is(&other));
    e.silent("!=", |one: &mut TextView, other: TextView| !one.is(&other));
    e.silent("glob", |pattern: &str, view: TextView| view.ask(Asked::Glob, pattern));
    e.silent("contains", |list: &mut ListView, item: &str| list.has(item));
    // As a list does it: nothing but a text, or the one character that a text is, equals a text.
    e.silent("contains", |list: &mut ListView, item: Dynamic| {
        item.as_char().is_ok_and(|c| list.has(c.encode_utf8(&mut [0; 4])))
    });
}
