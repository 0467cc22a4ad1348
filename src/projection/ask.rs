//! Questions of a script to the client of its call: `ctx.ask([elicit(…), sample(…), roots(…)])`.

use super::context::{Context, members};
use crate::call::{Asking, ClientRequest};
use crate::json::{self, Object};
use crate::script::{Array, Dynamic, EngineBuilder, HostResult, Text, fault};

/// Questions asked at once.
const QUESTIONS_MAX: usize = 8;
/// Bytes of a key.
const KEY_BYTES_MAX: usize = 64;
/// Bytes of one question: a form or a prompt, not a document.
const QUESTION_BYTES_MAX: usize = 64 * 1024;

/// A question, not yet asked.
#[derive(Debug, Clone)]
pub(super) struct Question(ClientRequest);

impl Question {
    fn new(key: &str, asking: Asking, params: Object) -> HostResult<Self> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(fault(format!("the key of a question has 1 to {KEY_BYTES_MAX} bytes")));
        }
        if json::encoded_len(&params) > QUESTION_BYTES_MAX {
            return Err(fault(format!("a question has at most {QUESTION_BYTES_MAX} bytes")));
        }
        Ok(Self(ClientRequest { key: key.to_owned(), asking, params }))
    }
}

/// The questions of a list, each under a key of its own.
pub(super) fn questions(list: Array) -> HostResult<Vec<ClientRequest>> {
    if list.is_empty() || list.len() > QUESTIONS_MAX {
        return Err(fault(format!("ask 1 to {QUESTIONS_MAX} questions at once")));
    }
    let mut out: Vec<ClientRequest> = Vec::with_capacity(list.len());
    for item in list {
        let question = item.try_cast::<Question>();
        let Question(request) =
            question.ok_or_else(|| fault("`ask` takes a list of elicit(…), sample(…) and roots(…)"))?;
        if out.iter().any(|other| other.key == request.key) {
            return Err(fault(format!("two questions have the key `{}`", request.key)));
        }
        out.push(request);
    }
    Ok(out)
}

/// Registers the questions and `ctx.ask`.
pub(super) fn register(b: &mut EngineBuilder) {
    b.host_type::<Question>("Question", "Something that only the client of the call can answer.");
    b.function(
        "elicit",
        "elicit(key, message, schema)",
        "A form for the person in front of the client (MCP elicitation); the answer has `action` and `content`.",
        |key: Text, message: Text, schema: Dynamic| -> HostResult<Question> {
            let mut params = Object::new();
            params.insert("message".to_owned(), message.as_str().into());
            params.insert("requestedSchema".to_owned(), members(&schema)?.into());
            Question::new(key.as_str(), Asking::Elicitation, params)
        },
    );
    b.function(
        "sample",
        "sample(key, params)",
        "A message of the client's model (MCP sampling): `messages`, `maxTokens`, ….",
        |key: Text, params: Dynamic| Question::new(key.as_str(), Asking::Sampling, members(&params)?),
    );
    b.function("roots", "roots(key)", "The folders that the client works on (MCP roots).", |key: Text| {
        Question::new(key.as_str(), Asking::Roots, Object::new())
    });
    b.function(
        "ask",
        "ctx.ask([questions]) -> View",
        "The answers by key. Only in `run`, and only of a tool that was called itself. The script begins anew when they have come: ask before anything is changed.",
        |c: &mut Context, list: Array| -> HostResult<Dynamic> { c.ask(questions(list)?) },
    );
    b.function(
        "can_ask",
        "ctx.can_ask(what) -> bool",
        "Whether the client can be asked: `what` is `\"elicitation\"`, `\"sampling\"` or `\"roots\"`.",
        |c: &mut Context, what: Text| -> HostResult<bool> {
            let asking = Asking::ALL.into_iter().find(|a| a.capability() == what.as_str());
            let asking =
                asking.ok_or_else(|| fault("`can_ask` knows \"elicitation\", \"sampling\" and \"roots\""))?;
            c.can_ask(asking)
        },
    );
}
