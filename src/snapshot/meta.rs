//! The names of docent's own tools: known here so that no catalog tool can take one of them.

use std::sync::Arc;

/// A tool of docent itself, named `<server name>_<suffix>` (contract §1.4), in the order of listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MetaTool {
    /// Ranked search.
    SearchTools,
    /// One tool's full entry.
    DescribeTool,
    /// Runs any permitted tool.
    RunTool,
    /// Runs a permitted tool that only reads.
    RunReadonlyTool,
    /// How a job stands, with its result in the end.
    JobStatus,
    /// Ends a job.
    JobCancel,
    /// Categories and their sizes.
    ListCategories,
    /// A part of a result that did not fit.
    ReadResult,
    /// Takes a file.
    UploadFile,
    /// The caller's own files.
    ListFiles,
    /// What the caller's code may rely on, with its hash.
    Surface,
    /// Who the caller is here and what is up.
    Context,
}

impl MetaTool {
    /// All of them, in the order of listing.
    pub const ALL: [Self; 12] = [
        Self::SearchTools,
        Self::DescribeTool,
        Self::RunTool,
        Self::RunReadonlyTool,
        Self::JobStatus,
        Self::JobCancel,
        Self::ListCategories,
        Self::ReadResult,
        Self::UploadFile,
        Self::ListFiles,
        Self::Surface,
        Self::Context,
    ];

    /// The part of the name after the server's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::SearchTools => "search_tools",
            Self::DescribeTool => "describe_tool",
            Self::RunTool => "run_tool",
            Self::RunReadonlyTool => "run_readonly_tool",
            Self::JobStatus => "job_status",
            Self::JobCancel => "job_cancel",
            Self::ListCategories => "list_categories",
            Self::ReadResult => "read_result",
            Self::UploadFile => "upload_file",
            Self::ListFiles => "list_files",
            Self::Surface => "surface",
            Self::Context => "context",
        }
    }

    /// The name on the wire.
    pub fn wire_name(self, server: &str) -> Arc<str> {
        Arc::from([server, "_", self.suffix()].concat())
    }

    /// The meta-tool of a wire name.
    pub fn of(server: &str, name: &str) -> Option<Self> {
        let suffix = name.strip_prefix(server)?.strip_prefix('_')?;
        Self::ALL.into_iter().find(|m| m.suffix() == suffix)
    }

    /// Every wire name that a catalog must leave free.
    pub fn reserved(server: &str) -> Vec<String> {
        Self::ALL.into_iter().map(|tool| format!("{server}_{}", tool.suffix())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::WIRE_NAME_BYTES_MAX;

    #[test]
    fn names_and_tools_are_one_to_one() {
        for tool in MetaTool::ALL {
            let name = tool.wire_name("my_docent");
            assert_eq!(MetaTool::of("my_docent", &name), Some(tool));
            assert_eq!(MetaTool::of("docent", &name), None);
            assert!(MetaTool::reserved("my_docent").contains(&name.to_string()));
            assert!(name.len() <= WIRE_NAME_BYTES_MAX);
        }
        assert_eq!(MetaTool::of("docent", "docent_nothing"), None);
    }
}
