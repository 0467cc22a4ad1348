//! The walk of the example host, on both wires, over a server of its own: seven steps, each checked by the host.

#[expect(dead_code, reason = "the example's own `main` is not called from here")]
#[path = "../../examples/agents_host/main.rs"]
mod agents_host;

use agents_host::{walk_alone, wire::Wire};

#[tokio::test(flavor = "multi_thread")]
async fn the_seven_steps_hold_on_the_session_wire() {
    walk_alone(Wire::Session).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seven_steps_hold_on_the_stateless_wire() {
    walk_alone(Wire::Stateless).await.unwrap();
}
