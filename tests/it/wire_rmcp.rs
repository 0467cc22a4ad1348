//! A client that no one here wrote: rmcp in both lifecycles against the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, ProgressNotificationParam, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, NotificationContext};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient};
use serde_json::json;

use crate::wire_double::WireServer;

/// Counts what it is told.
#[derive(Debug, Clone, Default)]
struct Listener {
    changes: Arc<AtomicUsize>,
    progress: Arc<AtomicUsize>,
}

impl ClientHandler for Listener {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.fetch_add(1, Ordering::SeqCst);
    }
}

fn lifecycles() -> [ClientLifecycleMode; 3] {
    let newest = || vec![ProtocolVersion::V_2026_07_28];
    [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover { preferred_versions: newest() },
        ClientLifecycleMode::Auto { preferred_versions: newest(), legacy_version: None },
    ]
}

#[test]
fn rmcp_lists_calls_and_hears_of_progress_and_steps_up_in_every_lifecycle() {
    rustls::crypto::ring::default_provider().install_default().ok();
    for lifecycle in lifecycles() {
        let server = WireServer::open();
        let listener = Listener::default();
        let (seen, shown) = (listener.clone(), format!("{lifecycle:?}"));
        server.block_on(async {
            let transport = StreamableHttpClientTransport::from_uri(format!("{}/mcp", server.url));
            let client = listener.serve_with_lifecycle(transport, lifecycle).await.expect(&shown);
            let tools = client.list_all_tools().await.expect(&shown);
            assert_eq!(tools.len(), 7, "{shown}: every page");
            let arguments = json!({"a": 1}).as_object().cloned().unwrap();
            let echo = CallToolRequestParams::new("echo").with_arguments(arguments);
            let result = client.call_tool(echo).await.expect(&shown);
            assert_eq!(result.structured_content.unwrap()["arguments"], json!({"a": 1}), "{shown}");
            let failed = client.call_tool(CallToolRequestParams::new("fail")).await.expect(&shown);
            assert_eq!(failed.is_error, Some(true));
            client.call_tool(CallToolRequestParams::new("progress")).await.expect(&shown);
            assert!(client.call_tool(CallToolRequestParams::new("nothing")).await.is_err());
            let error = client.call_tool(CallToolRequestParams::new("guarded")).await.unwrap_err();
            let challenge = error.auth_challenge().unwrap_or_else(|| panic!("{shown}: {error:?}"));
            assert!(challenge.contains("scope=\"ops:deploy ops:read\""), "{challenge}");
            client.cancel().await.expect(&shown);
        });
        for _ in 0..100 {
            if seen.progress.load(Ordering::SeqCst) == 3 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(seen.progress.load(Ordering::SeqCst), 3, "{shown}");
    }
}

#[test]
fn rmcp_is_told_of_changes_in_a_session() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let server = WireServer::open();
    let listener = Listener::default();
    let seen = Arc::clone(&listener.changes);
    server.block_on(async {
        let transport = StreamableHttpClientTransport::from_uri(format!("{}/mcp", server.url));
        let client = listener.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize).await.unwrap();
        server.double.add("one");
        for _ in 0..500 {
            if seen.load(Ordering::SeqCst) > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(seen.load(Ordering::SeqCst), 1);
        client.cancel().await.unwrap();
    });
}
