//! The exact-name rule: a tool that the question names comes first, whatever the score says.

use std::sync::Arc;

use super::text;
use crate::catalog::{Tool, ToolSet};
use crate::id::ToolNo;

/// How a name was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The id or the wire name: one tool.
    Id,
    /// The upstream's name for it: other upstreams may use it too.
    Name,
    /// The name's letters and digits without separators and case.
    Squashed,
}

impl Kind {
    /// Its number in a saved index.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Id => 0,
            Self::Name => 1,
            Self::Squashed => 2,
        }
    }

    /// The kind of a number.
    pub(super) fn of(code: u8) -> Option<Self> {
        [Self::Id, Self::Name, Self::Squashed].into_iter().find(|kind| kind.code() == code)
    }
}

/// A 64-bit digest of a name instead of the name: 16 bytes for each of some 40,000 names.
type Digest = u64;

/// All names of all tools.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<(Digest, Kind, u32)>);

impl Names {
    pub(super) fn build(tools: &[Arc<Tool>]) -> Self {
        let all: Vec<(u32, &Arc<Tool>)> = (0u32..).zip(tools).collect();
        Self::of(Vec::with_capacity(tools.len() * 4), &all)
    }

    /// These names and those of some tools.
    pub(super) fn of(mut names: Vec<(Digest, Kind, u32)>, tools: &[(u32, &Arc<Tool>)]) -> Self {
        for (no, tool) in tools {
            // Tools that no catalog named (candidates of `discover_tools`) have no id that anyone could know.
            for id in [tool.id.as_str(), &tool.wire_name].into_iter().filter(|_| !tool.wire_name.is_empty()) {
                names.push((digest(&id.to_lowercase()), Kind::Id, *no));
            }
            names.push((digest(&tool.name.to_lowercase()), Kind::Name, *no));
            names.push((digest(&squash(&tool.name)), Kind::Squashed, *no));
        }
        // Stable, since it makes use of runs: the names of a changed catalog are nearly in order.
        names.sort();
        names.dedup();
        Self(names)
    }

    /// Names that are in order already.
    pub(super) fn sorted(names: Vec<(Digest, Kind, u32)>) -> Self {
        Self(names)
    }

    /// All names in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Digest, Kind, u32)> + '_ {
        self.0.iter().copied()
    }

    /// The visible tools that a question names, in the order in which it names them.
    pub(super) fn named(&self, question: &str, visible: &ToolSet) -> Vec<ToolNo> {
        let mut out: Vec<ToolNo> = Vec::new();
        let whole = question.trim();
        self.take(whole, visible, &mut out);
        for segment in question.split([',', ';', '\n', '|']) {
            let bare_segment = bare(segment);
            if bare_segment != whole {
                self.take(bare_segment, visible, &mut out);
            }
            for word in segment.split_whitespace().map(bare).filter(|w| is_identifier(w)) {
                self.take(word, visible, &mut out);
            }
        }
        out
    }

    /// Adds the visible tools of a name.
    fn take(&self, name: &str, visible: &ToolSet, out: &mut Vec<ToolNo>) {
        let lower = name.to_lowercase();
        let written = (!lower.is_empty()).then(|| digest(&lower));
        let squashed =
            Some(squash(name)).filter(|letters| !letters.is_empty()).map(|letters| digest(&letters));
        for (digest, kind) in [(written, Kind::Id), (written, Kind::Name), (squashed, Kind::Squashed)] {
            let Some(digest) = digest else { continue };
            for tool in self.find(digest, kind, visible) {
                if !out.contains(&tool) {
                    out.push(tool);
                }
            }
        }
    }

    fn find(&self, digest: Digest, kind: Kind, visible: &ToolSet) -> impl Iterator<Item = ToolNo> {
        let from = self.0.partition_point(|(d, k, _)| (*d, *k) < (digest, kind));
        self.0
            .iter()
            .skip(from)
            .take_while(move |(d, k, _)| (*d, *k) == (digest, kind))
            .map(|(_, _, no)| ToolNo(*no))
            .filter(|no| visible.contains(*no))
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<(Digest, Kind, u32)>()
    }
}

/// Without the marks that people put around names.
fn bare(word: &str) -> &str {
    word.trim().trim_matches(|c: char| !(c.is_alphanumeric() || c == '_'))
}

/// Whether a word can only be meant as a name: plain words are not, or every `search` would be one.
fn is_identifier(word: &str) -> bool {
    let inner = word.char_indices().any(|(at, c)| at > 0 && (matches!(c, '_' | '.' | '~') || c == '-'));
    let humps = word.chars().zip(word.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase());
    inner || humps
}

/// Letters and digits in lower case.
pub(super) fn squash(name: &str) -> String {
    text::chunks(name).flat_map(text::split).collect()
}

/// The first 64 bits of blake3: a catalog cannot be made to collide on purpose.
fn digest(name: &str) -> Digest {
    blake3::hash(name.as_bytes()).as_bytes().iter().take(8).fold(0, |n, b| (n << 8) | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CatalogBuilder;
    use crate::diagnostic::Diagnostics;
    use crate::id::{ToolId, UpstreamId};
    use crate::schema::SchemaText;

    fn named(question: &str) -> Vec<String> {
        let mut builder = CatalogBuilder::new(Vec::new());
        for (id, upstream, name) in [
            ("github.list_issues", "github", "list_issues"),
            ("gitlab.list_issues", "gitlab", "list_issues"),
            ("web.search", "web", "search"),
            ("x.SendMail", "x", "SendMail"),
        ] {
            builder.push(Tool::new(
                ToolId::parse(id).unwrap(),
                UpstreamId::parse(upstream).unwrap(),
                name,
                SchemaText::empty_object(),
            ));
        }
        let catalog = builder.build(&mut Diagnostics::default());
        let names = Names::build(catalog.tools());
        let mut visible = ToolSet::all(catalog.len());
        visible.remove(catalog.lookup("gitlab.list_issues").unwrap().0);
        names
            .named(question, &visible)
            .iter()
            .map(|no| catalog.get(*no).unwrap().id.as_str().to_owned())
            .collect()
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        for question in [
            "list_issues",
            "List Issues",
            "github_list_issues",
            "`github.list_issues`",
            "use list_issues now",
        ] {
            assert_eq!(named(question), ["github.list_issues"], "{question}");
        }
        assert_eq!(named("SendMail, then search, list_issues"), ["x.SendMail", "github.list_issues"]);
        assert_eq!(named("search, send_mail"), ["web.search", "x.SendMail"]);
        assert_eq!(named("search"), ["web.search"]);
        assert!(named("search the web for issues").is_empty(), "a plain word in a sentence is no name");
    }
}
