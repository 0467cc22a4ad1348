//! A prompt whose parts ask their client: several may, so each has questions, answers and a state of its own, and
//! all of them travel as one.
//!
//! The client keeps nothing for us, and every part is made anew in each round. So the state holds what each part
//! sealed, and beside it the answers of parts that need no more: they are the client's own words, given back as they
//! came.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::{ClientQuestion, ClientReply, RequestContext};
use crate::call::{ErrorCode, ToolError};
use crate::json::{self, Object};

/// Between the number of a part and a key of its own, where several ask.
const MARK: char = '.';
/// Bytes of a state that is read: what a request may have of it at most.
const STATE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What one part has so far.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Part {
    /// What it sealed when it asked.
    state: String,
    /// Answers that were enough for it, by its own keys.
    #[serde(default)]
    answers: Object,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Travelling {
    parts: BTreeMap<usize, Part>,
    /// Those whose questions were sent with this state.
    asked: Vec<usize>,
}

/// One round of a prompt: what its client brought, and what is asked on.
#[derive(Debug, Default)]
pub(super) struct Round {
    brought: BTreeMap<usize, Part>,
    open: Vec<(usize, ClientQuestion)>,
}

impl Round {
    /// What a client brought, sorted by parts.
    pub(super) fn of(ctx: &RequestContext) -> Result<Self, ToolError> {
        let Some(reply) = ctx.reply.as_deref() else { return Ok(Self::default()) };
        // Answers to nothing that was asked are passed over.
        let Some(state) = reply.state.as_deref() else { return Ok(Self::default()) };
        let state = json::parse_as::<Travelling>(state.as_bytes(), STATE_BYTES_MAX);
        let Travelling { mut parts, asked } = state.map_err(|_not_ours| unknown_state())?;
        let is_one = asked.len() == 1;
        for number in asked {
            let Some(part) = parts.get_mut(&number) else { return Err(unknown_state()) };
            let prefix = format!("{number}{MARK}");
            for (key, answer) in &reply.responses {
                let own = if is_one { Some(key.as_str()) } else { key.strip_prefix(&prefix) };
                if let Some(own) = own {
                    part.answers.insert(own.to_owned(), answer.clone());
                }
            }
        }
        Ok(Self { brought: parts, open: Vec::new() })
    }

    /// The context of one part: with its own answers and state alone.
    pub(super) fn context(&self, ctx: &RequestContext, number: usize) -> RequestContext {
        let reply = self.brought.get(&number).map(|part| {
            Arc::new(ClientReply { responses: part.answers.clone(), state: Some(part.state.clone()) })
        });
        RequestContext { reply, ..ctx.clone() }
    }

    /// A part asks (on).
    pub(super) fn asks(&mut self, number: usize, question: ClientQuestion) {
        self.open.push((number, question));
    }

    /// All that is asked, as one question; nothing where no part asks.
    pub(super) fn question(self) -> Option<ClientQuestion> {
        let (mut parts, open) = (self.brought, self.open);
        let is_one = open.len() == 1;
        let (mut requests, mut asked) = (Vec::new(), Vec::new());
        for (number, question) in open {
            for mut request in question.requests {
                if !is_one {
                    request.key = format!("{number}{MARK}{}", request.key);
                }
                requests.push(request);
            }
            // What it was answered before is sealed into its new state.
            parts.insert(number, Part { state: question.state, answers: Object::new() });
            asked.push(number);
        }
        let state = json::to_text(&Travelling { parts, asked });
        (!requests.is_empty()).then_some(ClientQuestion { requests, state })
    }
}

fn unknown_state() -> ToolError {
    let message = "`requestState` is not one that was given for this prompt: ask for it again without it.";
    ToolError::new(ErrorCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::{Asking, ClientRequest};
    use crate::policy::Principal;

    fn question(key: &str, state: &str) -> ClientQuestion {
        let request =
            ClientRequest { key: key.to_owned(), asking: Asking::Elicitation, params: Object::new() };
        ClientQuestion { requests: vec![request], state: state.to_owned() }
    }

    fn ctx(responses: &serde_json::Value, state: Option<&str>) -> RequestContext {
        let mut ctx = RequestContext::new(Arc::new(Principal::anonymous()), "t");
        let responses = responses.as_object().unwrap().clone();
        ctx.reply = Some(Arc::new(ClientReply { responses, state: state.map(str::to_owned) }));
        ctx
    }

    fn keys(question: &ClientQuestion) -> Vec<&str> {
        question.requests.iter().map(|r| r.key.as_str()).collect()
    }

    #[test]
    fn one_part_keeps_its_keys_and_several_are_told_apart() {
        let mut round = Round::default();
        round.asks(3, question("name", "s3"));
        let one = round.question().unwrap();
        assert_eq!(keys(&one), ["name"]);
        let back = ctx(&json!({"name": {"n": 1}}), Some(&one.state));
        let round = Round::of(&back).unwrap();
        let part = round.context(&back, 3).reply.unwrap();
        assert_eq!((part.state.as_deref(), &part.responses["name"]["n"]), (Some("s3"), &json!(1)));
        assert!(round.context(&back, 1).reply.is_none(), "another part has not asked");

        let mut round = Round::default();
        round.asks(0, question("name", "s0"));
        round.asks(2, question("name", "s2"));
        let both = round.question().unwrap();
        assert_eq!(keys(&both), ["0.name", "2.name"]);
        let back = ctx(&json!({"0.name": {"n": 0}, "2.name": {"n": 2}, "name": {"n": 9}}), Some(&both.state));
        let mut round = Round::of(&back).unwrap();
        for (number, n) in [(0, 0), (2, 2)] {
            let part = round.context(&back, number).reply.unwrap();
            assert_eq!((part.responses.len(), &part.responses["name"]["n"]), (1, &json!(n)));
        }
        // The second one asks on: what the first one was answered goes with the question.
        round.asks(2, question("more", "s2b"));
        let last = round.question().unwrap();
        assert_eq!(keys(&last), ["more"]);
        let back = ctx(&json!({"more": {"n": 3}}), Some(&last.state));
        let round = Round::of(&back).unwrap();
        let first = round.context(&back, 0).reply.unwrap();
        assert_eq!((first.state.as_deref(), &first.responses["name"]["n"]), (Some("s0"), &json!(0)));
        let second = round.context(&back, 2).reply.unwrap();
        assert_eq!((second.state.as_deref(), second.responses.len()), (Some("s2b"), 1));
        assert!(round.question().is_none());
    }

    #[test]
    fn a_state_that_is_none_of_ours_is_told_and_answers_without_one_are_nothing() {
        for bad in ["", "x", "{}", r#"{"parts":{},"asked":[1]}"#, r#"{"parts":[],"asked":[]}"#] {
            assert!(Round::of(&ctx(&json!({}), Some(bad))).is_err(), "{bad}");
        }
        let stray = ctx(&json!({"name": {}}), None);
        assert!(Round::of(&stray).unwrap().context(&stray, 0).reply.is_none());
    }
}
