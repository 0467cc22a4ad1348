//! rmcp, the official Rust client, walks docent in front of `server-everything` in both lifecycles:
//! list, search, describe, run, call.

use rmcp::ServiceExt as _;
use rmcp::model::{CallToolRequestParams, CallToolResult, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};

use crate::clients::{home_before_everything, serve};
use crate::support::tools;

#[derive(Debug, Clone, Default)]
struct Plain;

impl ClientHandler for Plain {}

type Client = RunningService<RoleClient, Plain>;

async fn call(client: &Client, tool: &'static str, arguments: Value) -> CallToolResult {
    let arguments = arguments.as_object().cloned().unwrap();
    client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await.unwrap()
}

fn text(result: &CallToolResult) -> String {
    serde_json::to_value(&result.content).unwrap()[0]["text"].as_str().unwrap().to_owned()
}

async fn walk(client: Client) {
    let listed: Vec<String> =
        client.list_all_tools().await.unwrap().iter().map(|t| t.name.to_string()).collect();
    assert_eq!(listed[0], "docent_search_tools");
    assert!(listed.iter().any(|name| name == "everything_echo"), "{listed:?}");
    let found = call(&client, "docent_search_tools", json!({"query": "echo a message back"})).await;
    assert_eq!(found.structured_content.as_ref().unwrap()["tools"][0]["id"], "everything.echo");
    assert_eq!(serde_json::from_str::<Value>(&text(&found)).unwrap(), found.structured_content.unwrap());
    let described = call(&client, "docent_describe_tool", json!({"tool": "everything.echo"})).await;
    assert_eq!(
        described.structured_content.unwrap()["input_schema"]["properties"]["message"]["type"],
        "string"
    );
    let arguments = json!({"tool": "everything.echo", "arguments": {"message": "through run"}});
    assert_eq!(text(&call(&client, "docent_run_tool", arguments).await), "Echo: through run");
    assert_eq!(text(&call(&client, "everything_echo", json!({"message": "direct"})).await), "Echo: direct");
    assert!(client.call_tool(CallToolRequestParams::new("everything_no_such_tool")).await.is_err());
    client.cancel().await.unwrap();
}

#[test]
fn rmcp_walks_docent_in_front_of_a_real_server_in_both_lifecycles() {
    let Some(tools) = tools("rmcp in front of server-everything") else { return };
    rustls::crypto::ring::default_provider().install_default().ok();
    let home = home_before_everything(&tools);
    let server = serve(&home);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let transport = || StreamableHttpClientTransport::from_uri(format!("{}/mcp", server.url));
        walk(Plain.serve(transport()).await.unwrap()).await;
        let newest = vec![ProtocolVersion::V_2026_07_28];
        let discover = ClientLifecycleMode::Discover { preferred_versions: newest };
        walk(Plain.serve_with_lifecycle(transport(), discover).await.unwrap()).await;
    });
}
