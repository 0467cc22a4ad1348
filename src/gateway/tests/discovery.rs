//! Lists, modes, cursors, surfaces, instructions.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::gateway::ListError;
use crate::policy::DiscoveryMode;

fn settings(page_size: usize) -> ServerSettings {
    ServerSettings { page_size, listed_tools_max: 20, ..ServerSettings::default() }
}

fn walk(gateway: &Gateway, ctx: &RequestContext) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = gateway.list_tools(ctx, cursor.as_deref()).unwrap();
        pages.push(page.tools.iter().map(|t| t.name.to_string()).collect());
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return pages,
        }
    }
}

/// docent's own tools come first, and are no part of a page's size.
const META: usize = snapshot::MetaTool::ALL.len();

#[test]
fn the_full_list_has_meta_tools_first_then_every_visible_tool_once() {
    let world = World::new(50, settings(20));
    let pages = walk(&world.gateway, &caller(&[]));
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [20 + META, 20, 14]);
    assert_eq!(pages[0][..2], ["docent_search_tools", "docent_describe_tool"]);
    let all: Vec<&String> = pages.iter().flatten().collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), META + 54);
    assert!(!all.iter().any(|n| n.contains("hidden")));
    assert!(all.iter().any(|n| *n == "fake_deploy"), "a tool that needs step-up is listed");
    assert!(walk(&world.gateway, &caller(&["see:hidden"])).concat().contains(&"fake_hidden".to_owned()));
}

#[test]
fn the_mode_comes_from_the_nearest_setting() {
    let world = World::new(50, settings(20));
    let mut ctx = caller(&[]);
    assert_eq!(world.gateway.mode(&ctx), DiscoveryMode::Full);
    Arc::make_mut(&mut ctx.principal).discovery = Some(DiscoveryMode::Compact);
    assert_eq!(world.gateway.mode(&ctx), DiscoveryMode::Compact);
    assert_eq!(walk(&world.gateway, &ctx).concat().len(), META);
    ctx.discovery = Some(DiscoveryMode::Full);
    assert_eq!(world.gateway.mode(&ctx), DiscoveryMode::Full);
    ctx.discovery = Some(DiscoveryMode::Auto);
    assert_eq!(world.gateway.mode(&ctx), DiscoveryMode::Compact, "54 tools are more than 20");
    assert_eq!(World::new(3, settings(20)).gateway.mode(&ctx), DiscoveryMode::Full);
}

#[test]
fn every_bad_cursor_has_one_answer() {
    let world = World::new(50, settings(20));
    let list = |ctx: &RequestContext, cursor: &str| world.gateway.list_tools(ctx, Some(cursor)).unwrap_err();
    let first = world.gateway.list_tools(&caller(&[]), None).unwrap().next_cursor.unwrap();
    assert!(world.gateway.list_tools(&caller(&["unrelated"]), Some(&first)).is_ok(), "the same class");
    let mut compact = caller(&[]);
    compact.discovery = Some(DiscoveryMode::Compact);
    for (ctx, cursor) in [
        (&caller(&[]), "garbage"),
        (&caller(&[]), ""),
        (&caller(&["see:hidden"]), first.as_str()),
        (&compact, first.as_str()),
    ] {
        assert_eq!(list(ctx, cursor), ListError::BadCursor);
    }
    world.with_policy(POLICY);
    assert!(world.gateway.list_tools(&caller(&[]), Some(&first)).is_ok(), "nothing changed in generation 2");
    world.with_policy(&format!("{POLICY}\n// another text"));
    assert_eq!(list(&caller(&[]), &first), ListError::BadCursor);
}

#[test]
fn a_surface_moves_only_for_whom_it_moves() {
    let world = World::new(3, settings(20));
    let (plain, seer) = (caller(&[]), caller(&["see:hidden"]));
    let before = (world.gateway.surface(&plain), world.gateway.surface(&seer));
    assert_ne!(before.0, before.1);
    world.with_policy(&POLICY.replace("see:hidden", "see:all"));
    assert_eq!(world.gateway.surface(&plain), before.0);
    assert_ne!(world.gateway.surface(&seer), before.1);
    assert_eq!(world.gateway.surface(&seer), before.0);
}

/// What instructions say holds: how many tools there are, and whether the list shows them.
#[test]
fn instructions_are_true_for_every_caller_in_every_mode_and_size() {
    for (count, max) in [(0, 2_048), (50, 2_048), (150, 2_048), (50, 400), (50, 64)] {
        let mut settings = settings(20);
        settings.instructions = Some(Arc::from("Ask the owners before you deploy. ".repeat(90)));
        settings.budgets.instructions_bytes = max;
        let world = World::new(count, settings);
        for who in [caller(&[]), caller(&["see:hidden"])] {
            for mode in [DiscoveryMode::Full, DiscoveryMode::Compact, DiscoveryMode::Auto] {
                let mut ctx = who.clone();
                ctx.discovery = Some(mode);
                let text = world.gateway.instructions(&ctx);
                let listed = walk(&world.gateway, &ctx).concat();
                let tools = listed.iter().filter(|name| !name.starts_with("docent_")).count();
                let case = format!("{count} tools, {max} bytes, {mode:?}: {text}");
                assert!(text.len() <= max && !text.is_empty(), "{case}");
                let last = text.rsplit("\n\n").next().unwrap();
                assert!(!last.contains("every call is checked") && !last.contains("refused"), "{case}");
                if max < 300 {
                    continue;
                }
                assert_eq!(text.contains("the list shows all of them"), tools > 0, "{case}");
                assert_eq!(text.contains("the list shows only the server's own"), tools == 0, "{case}");
                let all = {
                    ctx.discovery = Some(DiscoveryMode::Full);
                    walk(&world.gateway, &ctx).concat()
                };
                let all = all.iter().filter(|name| !name.starts_with("docent_")).count();
                assert!(text.contains(&format!("You may use {all} tools;")), "{all}: {case}");
            }
        }
    }
}

#[test]
fn instructions_fit_and_never_end_with_authorization() {
    for own in ["", "Be kind.", &"long words ".repeat(500)] {
        let world = World::new(50, ServerSettings { instructions: Some(Arc::from(own)), ..settings(20) });
        for mode in [DiscoveryMode::Full, DiscoveryMode::Compact] {
            let mut ctx = caller(&[]);
            ctx.discovery = Some(mode);
            let text = world.gateway.instructions(&ctx);
            assert!(text.len() <= 2_048, "{}", text.len());
            let last = text.rsplit("\n\n").next().unwrap();
            assert!(!last.contains("refused") && text.contains("every call is checked"), "{text}");
            assert_eq!(text.contains("only the server's own"), mode == DiscoveryMode::Compact);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// What is listed can be called or asks for more; what is not listed is unknown.
    #[test]
    fn listed_is_callable_or_challenged(hide in prop::collection::btree_set(0usize..12, 0..12), challenge in prop::collection::btree_set(0usize..12, 0..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rules = |kind: &str, set: &BTreeSet<usize>| {
            set.iter().map(|n| format!("p.{kind}.tool(\"fake.n{n:05}\");")).collect::<Vec<_>>().join("\n")
        };
        let world = World::new(12, settings(5));
        world.with_policy(&format!(
            "fn rules(p) {{ p.allow().upstream(\"fake\");\n{}{} }}",
            rules("hide()", &hide), rules("challenge([\"x:y\"])", &challenge)
        ));
        let listed = walk(&world.gateway, &caller(&[])).concat();
        for n in 0..12 {
            let name = format!("fake_n{n:05}");
            let answer = runtime.block_on(world.call(&name, json!({})));
            let expected = match answer {
                CallAnswer::UnknownTool => false,
                CallAnswer::Challenge(_) => { prop_assert!(challenge.contains(&n)); true }
                CallAnswer::Outcome(ToolOutcome::Completed(_)) => true,
                CallAnswer::Outcome(ToolOutcome::Failed(e)) => return Err(TestCaseError::fail(e.to_string())),
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            };
            prop_assert_eq!(listed.contains(&name), expected);
            prop_assert_eq!(expected, !hide.contains(&n));
        }
    }
}
