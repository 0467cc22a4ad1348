//! The methods of the wire: one row each. A method that has no row for a revision does not exist there.

use super::revision::Revision;

/// What a method does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Opens a session.
    Initialize,
    /// Says that the server is there.
    Ping,
    /// Tells what the server speaks and can.
    Discover,
    /// Opens a stream of notifications.
    Listen,
    /// One page of the tools.
    ListTools,
    /// One call.
    CallTool,
    /// One page of the agents.
    ListAgents,
    /// An agent with its instructions and tools.
    GetAgent,
    /// How a task stands, with its result in the end.
    GetTask,
    /// What came of a task, once it has ended.
    TaskResult,
    /// Answers to what a task asked its client.
    UpdateTask,
    /// Asks for a task's end.
    CancelTask,
    /// One page of the resources.
    ListResources,
    /// One page of the templates of resources.
    ListTemplates,
    /// What a resource holds.
    ReadResource,
    /// Begins to watch a resource.
    Subscribe,
    /// Watches it no more.
    Unsubscribe,
    /// One page of the prompts.
    ListPrompts,
    /// A prompt with its arguments put in.
    GetPrompt,
    /// Completes an argument.
    Complete,
}

struct Row {
    name: &'static str,
    method: Method,
    since: Revision,
    until: Revision,
}

const FIRST: Revision = Revision::V2025_03_26;
/// The first revision in which the extensions are offered: agents are one.
const EXTENDED: Revision = Revision::V2025_06_18;
/// The revision with tasks in its core; after it they are an extension.
const TASKS: Revision = Revision::V2025_11_25;
const SESSION: Revision = Revision::NEWEST_SESSION;
const STATELESS: Revision = Revision::V2026_07_28;

/// Every method and the revisions that have it. Capabilities are announced in `discover.rs`, beside this.
const METHODS: [Row; 20] = [
    Row { name: "initialize", method: Method::Initialize, since: FIRST, until: SESSION },
    Row { name: "ping", method: Method::Ping, since: FIRST, until: SESSION },
    Row { name: "server/discover", method: Method::Discover, since: STATELESS, until: STATELESS },
    Row { name: "subscriptions/listen", method: Method::Listen, since: STATELESS, until: STATELESS },
    Row { name: "tools/list", method: Method::ListTools, since: FIRST, until: STATELESS },
    Row { name: "tools/call", method: Method::CallTool, since: FIRST, until: STATELESS },
    Row { name: "agents/list", method: Method::ListAgents, since: EXTENDED, until: STATELESS },
    Row { name: "agents/get", method: Method::GetAgent, since: EXTENDED, until: STATELESS },
    Row { name: "tasks/get", method: Method::GetTask, since: TASKS, until: STATELESS },
    Row { name: "tasks/result", method: Method::TaskResult, since: TASKS, until: TASKS },
    Row { name: "tasks/update", method: Method::UpdateTask, since: STATELESS, until: STATELESS },
    Row { name: "tasks/cancel", method: Method::CancelTask, since: TASKS, until: STATELESS },
    Row { name: "resources/list", method: Method::ListResources, since: FIRST, until: STATELESS },
    Row { name: "resources/templates/list", method: Method::ListTemplates, since: FIRST, until: STATELESS },
    Row { name: "resources/read", method: Method::ReadResource, since: FIRST, until: STATELESS },
    Row { name: "resources/subscribe", method: Method::Subscribe, since: FIRST, until: SESSION },
    Row { name: "resources/unsubscribe", method: Method::Unsubscribe, since: FIRST, until: SESSION },
    Row { name: "prompts/list", method: Method::ListPrompts, since: FIRST, until: STATELESS },
    Row { name: "prompts/get", method: Method::GetPrompt, since: FIRST, until: STATELESS },
    Row { name: "completion/complete", method: Method::Complete, since: FIRST, until: STATELESS },
];

impl Method {
    /// Whether it may take long: on a pipe it does not hold up what comes after it, and a session may cancel it.
    pub(super) fn is_slow(self) -> bool {
        matches!(
            self,
            Self::CallTool | Self::TaskResult | Self::ReadResource | Self::GetPrompt | Self::Complete
        )
    }

    /// The method of a name in a revision.
    pub(super) fn find(name: &str, revision: Revision) -> Option<Self> {
        METHODS
            .iter()
            .find(|row| row.name == name && row.since <= revision && revision <= row.until)
            .map(|row| row.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_end_with_their_wire() {
        for (name, session, stateless) in [
            ("initialize", true, false),
            ("ping", true, false),
            ("server/discover", false, true),
            ("subscriptions/listen", false, true),
            ("tools/list", true, true),
            ("tools/call", true, true),
            ("tasks/list", false, false),
            ("tasks/update", false, true),
            ("resources/read", true, true),
            ("resources/subscribe", true, false),
            ("completion/complete", true, true),
            ("logging/setLevel", false, false),
            ("TOOLS/LIST", false, false),
        ] {
            assert_eq!(Method::find(name, Revision::V2025_03_26).is_some(), session, "{name}");
            assert_eq!(Method::find(name, Revision::V2025_11_25).is_some(), session, "{name}");
            assert_eq!(Method::find(name, Revision::V2026_07_28).is_some(), stateless, "{name}");
        }
        let of = |name, revision| Method::find(name, revision).is_some();
        for (revision, core, extension) in [
            (Revision::V2025_06_18, false, false),
            (Revision::V2025_11_25, true, false),
            (Revision::V2026_07_28, false, true),
        ] {
            assert_eq!(of("tasks/get", revision), core || extension, "{revision}");
            assert_eq!(of("tasks/cancel", revision), core || extension, "{revision}");
            assert_eq!((of("tasks/result", revision), of("tasks/update", revision)), (core, extension));
        }
    }
}
