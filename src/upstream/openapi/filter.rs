//! Which operations of a document become tools: globs over tags, methods, paths and operationIds.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Globs over the four things one knows an operation by. Methods and tags ignore case; in paths `*` stays within
/// one segment and `**` crosses them, and `{id}` means itself.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    tags: Option<GlobSet>,
    methods: Option<GlobSet>,
    paths: Option<GlobSet>,
    operations: Option<GlobSet>,
}

/// An operation as a filter sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub tags: &'a [&'a str],
    /// In upper case.
    pub method: &'a str,
    pub path: &'a str,
    /// The document's operationId, else the name derived for it.
    pub operation: &'a str,
}

impl Filter {
    /// Compiles the lists; an empty list says nothing about its thing. The error names the glob that is none.
    pub fn new(
        tags: &[String],
        methods: &[String],
        paths: &[String],
        operations: &[String],
    ) -> Result<Self, String> {
        Ok(Self {
            tags: globs(tags, Kind::Word)?,
            methods: globs(methods, Kind::Word)?,
            paths: globs(paths, Kind::Path)?,
            operations: globs(operations, Kind::Name)?,
        })
    }

    /// Whether every list that says something matches: what `include` asks.
    pub(super) fn takes(&self, c: Candidate<'_>) -> bool {
        self.answers(c).into_iter().all(|answer| answer != Some(false))
    }

    /// Whether any list that says something matches: what `exclude` asks.
    pub(super) fn hits(&self, c: Candidate<'_>) -> bool {
        self.answers(c).into_iter().any(|answer| answer == Some(true))
    }

    fn answers(&self, c: Candidate<'_>) -> [Option<bool>; 4] {
        [
            self.tags.as_ref().map(|set| c.tags.iter().any(|t| set.is_match(t))),
            self.methods.as_ref().map(|set| set.is_match(c.method)),
            self.paths.as_ref().map(|set| set.is_match(c.path)),
            self.operations.as_ref().map(|set| set.is_match(c.operation)),
        ]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Path,
    Name,
}

fn globs(list: &[String], kind: Kind) -> Result<Option<GlobSet>, String> {
    if list.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for text in list {
        // A template's braces are no alternatives of a glob.
        let pattern =
            if kind == Kind::Path { text.replace('{', "[{]").replace('}', "[}]") } else { text.clone() };
        let glob = GlobBuilder::new(&pattern)
            .literal_separator(kind == Kind::Path)
            .case_insensitive(kind == Kind::Word)
            .build()
            .map_err(|e| format!("`{text}` is not a glob: {}", e.kind()))?;
        set.add(glob);
    }
    set.build().map(Some).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(tags: &[&str], methods: &[&str], paths: &[&str], operations: &[&str]) -> Filter {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        Filter::new(&own(tags), &own(methods), &own(paths), &own(operations)).unwrap()
    }

    const C: Candidate<'_> = Candidate {
        tags: &["Issues", "beta"],
        method: "GET",
        path: "/repos/{owner}/issues",
        operation: "issues/list",
    };

    #[test]
    fn include_asks_every_list_and_exclude_any() {
        assert!(Filter::default().takes(C) && !Filter::default().hits(C));
        let both = filter(&["issues"], &["post"], &[], &[]);
        assert!(!both.takes(C) && both.hits(C));
        assert!(filter(&["iss*"], &["get"], &[], &["issues/*"]).takes(C));
    }

    #[test]
    fn path_globs_know_segments_and_templates() {
        let path = |glob: &str| filter(&[], &[], &[glob], &[]).takes(C);
        assert!(path("/repos/{owner}/*") && path("/repos/**") && path("/repos/*/issues"));
        assert!(!path("/repos/*") && !path("/repos/owner/issues"));
        assert!(Filter::new(&[], &[], &["/a/[".to_owned()], &[]).unwrap_err().contains("/a/["));
    }
}
