//! Questions to a client: requests of the server's own on the session wire and on a pipe (`elicitation/create`,
//! `sampling/createMessage`, `roots/list`), `input_required` on the stateless wire.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::encode::{ResultWriter, ServerInfo};
use super::envelope::{Params, RequestId};
use super::error::RpcError;
use super::revision::Revision;
use crate::call::ClientRequest;
use crate::gateway::{ClientQuestion, ClientReply};
use crate::json;

/// How long a person may take to answer.
const ANSWER_WAIT: Duration = Duration::from_mins(5);
/// Questions of one client that wait at once; a client that answers none must not make more.
const WAITING_MAX: usize = 16;

/// Requests of the server's own that wait for their answers, of one session or one pipe.
#[derive(Debug, Default)]
pub(super) struct Questions {
    waiting: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    next: AtomicU64,
}

impl Questions {
    fn waiting(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<Value>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an answer of the client. One to a question that nobody asked, or that comes late, is nothing.
    pub(super) fn answered(&self, id: &RequestId, result: Option<&str>) {
        let Some(sender) = self.waiting().remove(id.as_str()) else { return };
        let value = result.and_then(|raw| json::parse(raw.as_bytes(), raw.len()).ok());
        // An error in place of a result: the client could not ask.
        sender.send(value.unwrap_or(Value::Null)).ok();
    }

    fn open(&self) -> Option<(String, oneshot::Receiver<Value>)> {
        let mut waiting = self.waiting();
        if waiting.len() >= WAITING_MAX {
            return None;
        }
        let id = format!("\"docent-{}\"", self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        waiting.insert(id.clone(), sender);
        Some((id, receiver))
    }
}

/// The way to the client of one request.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub(super) outbox: mpsc::Sender<Bytes>,
    pub(super) questions: Arc<Questions>,
}

impl Asker {
    /// Asks all questions, one after the other, and waits for the answers. `None` where the client gave none to
    /// one of them: it cannot, it is gone, or it took too long.
    pub(super) async fn ask(
        &self,
        question: &ClientQuestion,
        cancel: &CancellationToken,
    ) -> Option<ClientReply> {
        let mut responses = json::Object::new();
        for request in &question.requests {
            responses.insert(request.key.clone(), self.ask_one(request, cancel).await?);
        }
        Some(ClientReply { responses, state: Some(question.state.clone()) })
    }

    async fn ask_one(&self, request: &ClientRequest, cancel: &CancellationToken) -> Option<Value> {
        let (id, answer) = self.questions.open()?;
        let (method, params) = (request.asking.method(), json::to_text(&request.params));
        let message =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}");
        let sent = self.outbox.send(Bytes::from(message)).await;
        let answered = tokio::select! {
            answer = answer, if sent.is_ok() => answer.ok(),
            () = tokio::time::sleep(ANSWER_WAIT) => None,
            () = self.outbox.closed() => None,
            () = cancel.cancelled() => None,
        };
        self.questions.waiting().remove(&id);
        answered.filter(|value| !value.is_null())
    }
}

/// What a call of the stateless wire brings in answer to `input_required` (MCP 2026-07-28, multi round-trip
/// requests); nothing where it brings neither answers nor a state.
pub(super) fn brought(params: &Params) -> Result<Option<ClientReply>, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Brought {
        input_responses: Option<json::Object>,
        request_state: Option<String>,
    }
    // Nearly every call brings neither: its arguments are not read for that.
    if !params.has("inputResponses") && !params.has("requestState") {
        return Ok(None);
    }
    let Brought { input_responses, request_state } = params.read()?;
    if input_responses.is_none() && request_state.is_none() {
        return Ok(None);
    }
    let responses = input_responses.unwrap_or_default();
    if responses.values().any(|answer| !answer.is_object()) {
        return Err(RpcError::invalid_params("every member of `inputResponses` must be an object"));
    }
    Ok(Some(ClientReply { responses, state: request_state }))
}

/// Questions by key, as `inputRequests` has them.
pub(super) fn input_requests(requests: &[ClientRequest]) -> json::Object {
    let one = |r: &ClientRequest| (r.key.clone(), json!({ "method": r.asking.method(), "params": r.params }));
    requests.iter().map(one).collect()
}

/// The result `input_required` of the stateless wire.
pub(super) fn input_required(id: &RequestId, question: &ClientQuestion, server: &ServerInfo) -> Bytes {
    let mut writer = ResultWriter::new(id, 1024);
    writer.put("inputRequests", &input_requests(&question.requests));
    writer.put("requestState", &question.state);
    writer.finish_as("input_required", Revision::V2026_07_28, None, server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Asking;
    use crate::mcp::envelope::{Incoming, Message, decode};

    fn params(text: &str) -> Params {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{text}}}"#);
        match decode(body.as_bytes(), 10_000) {
            Ok(Incoming::One(Message::Request { params, .. })) => params,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_are_objects_by_key_and_a_state_is_a_text() {
        assert!(brought(&params(r#"{"name":"a"}"#)).unwrap().is_none());
        assert!(brought(&params(r#"{"inputResponses":null}"#)).unwrap().is_none());
        let both = brought(&params(r#"{"inputResponses":{"k":{"action":"accept"}},"requestState":"s"}"#));
        let both = both.unwrap().unwrap();
        assert_eq!(
            (both.state.as_deref(), both.responses["k"]["action"].as_str()),
            (Some("s"), Some("accept"))
        );
        for bad in [r#"{"inputResponses":7}"#, r#"{"inputResponses":{"k":7}}"#, r#"{"requestState":{}}"#] {
            assert!(brought(&params(bad)).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn an_answer_comes_to_its_own_question_and_a_late_one_to_nobody() {
        let questions = Arc::new(Questions::default());
        let (outbox, mut sent) = mpsc::channel(4);
        let asker = Asker { outbox, questions: Arc::clone(&questions) };
        let params = json!({"message": "Really?", "requestedSchema": {"type": "object", "properties": {}}});
        let request = ClientRequest {
            key: "confirm".to_owned(),
            asking: Asking::Elicitation,
            params: params.as_object().unwrap().clone(),
        };
        let question = ClientQuestion { requests: vec![request], state: "s".to_owned() };
        let cancel = CancellationToken::new();
        let asking = asker.ask(&question, &cancel);
        let answering = async {
            let request = json::parse(&sent.recv().await.unwrap(), 10_000).unwrap();
            assert_eq!(request["method"], "elicitation/create");
            assert_eq!(request["params"]["requestedSchema"]["type"], "object");
            let answer = |id: &str| {
                let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept"}}}}"#);
                match decode(body.as_bytes(), 1_000) {
                    Ok(Incoming::One(Message::Response { id, result })) => {
                        questions.answered(&id, result.as_deref());
                    }
                    other => panic!("{other:?}"),
                }
            };
            answer("\"docent-99\"");
            answer(&request["id"].to_string());
            answer(&request["id"].to_string());
        };
        let (answer, ()) = tokio::join!(asking, answering);
        let answer = answer.unwrap();
        assert_eq!(answer.state.as_deref(), Some("s"));
        assert_eq!(answer.responses["confirm"]["action"], "accept");
        cancel.cancel();
        assert!(asker.ask(&question, &cancel).await.is_none());
        assert!(questions.waiting().is_empty());
    }
}
