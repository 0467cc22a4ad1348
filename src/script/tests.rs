//! What the sandbox holds back, and what its errors say.

use std::time::{Duration, Instant};

use super::*;
use crate::clock::Clock;
use crate::diagnostic::{Diagnostics, SourceFile};

fn builder(dialect: Dialect) -> EngineBuilder {
    let mut builder = EngineBuilder::new(dialect);
    builder.function("boom", "boom()", "Panics.", || -> i64 { panic!("planted") });
    builder
        .function("refuse", "refuse()", "Fails.", || -> HostResult<i64> { Err(fault("the host says no")) });
    builder
}

fn compile(dialect: Dialect, text: &str) -> Result<Script, String> {
    let mut diagnostics = Diagnostics::default();
    let script = builder(dialect).build().compile(&SourceFile::new("t.rhai", text), &mut diagnostics);
    script.ok_or_else(|| diagnostics.to_string())
}

fn run(text: &str) -> Result<Dynamic, Box<ScriptError>> {
    compile(Dialect::Projection, text).unwrap().call("f", vec![])
}

fn now() -> Instant {
    Clock::system().now()
}

#[test]
fn what_reaches_outside_is_absent() {
    let gone = [
        "sleep(1)",
        "sleep(1.0)",
        "timestamp()",
        "exit()",
        "exit(1)",
        "parse_json(\"{}\")",
        "eval(\"1\")",
        "print(1)",
        "debug(1)",
        "get_fn_metadata_list()",
        "import \"x\" as y",
        "curry(Fn(\"f\"), 1)",
        "is_shared(1)",
        "rand()",
        "open_file(\"x\")",
    ];
    for text in gone {
        for dialect in [Dialect::Policy, Dialect::Projection] {
            let refused = compile(dialect, &format!("fn f() {{ {text}; }}"));
            assert!(refused.is_err(), "`{text}` compiles in {dialect:?}");
        }
    }
    // Reached by name at run time instead.
    for name in ["sleep", "eval", "exit", "timestamp", "print", "parse_json"] {
        let refused = compile(Dialect::Projection, &format!("fn f() {{ call(Fn(\"{name}\"), 1) }}"))
            .map_err(|e| e.clone())
            .and_then(|s| s.call("f", vec![]).map_err(|e| e.to_string()));
        assert!(refused.is_err(), "`{name}` runs through a function pointer: {refused:?}");
    }
}

#[test]
fn a_policy_has_no_loops_and_no_anonymous_functions() {
    for text in ["loop { }", "while true { }", "for x in [1] { }", "do { } while true", "let f = |x| x;"] {
        assert!(compile(Dialect::Policy, &format!("fn f() {{ {text} }}")).is_err(), "{text}");
        assert!(compile(Dialect::Projection, &format!("fn f() {{ {text} }}")).is_ok(), "{text}");
    }
}

#[test]
fn whatever_a_script_does_it_ends_soon_and_small() {
    let hostile = [
        ("loop", "fn f() { loop { } }"),
        ("recursion", "fn f() { f() }"),
        ("two recursions", "fn g(n) { if n == 0 { 0 } else { g(n - 1) + g(n - 1) } } fn f() { g(28) }"),
        ("text doubling", "fn f() { let s = \"x\"; loop { s += s; } }"),
        ("array growth", "fn f() { let a = []; loop { a.push(1); } }"),
        ("array of arrays", "fn f() { let a = []; loop { a = [a, a]; } }"),
        ("self nesting", "fn f() { let a = []; loop { a = [a]; } }"),
        (
            "map by index",
            "fn f() { let m = #{}; let s = \"\"; s.pad(200000, 'x'); let i = 0; loop { m[`${s}${i}`] = s + i; i += 1; } }",
        ),
        ("map nesting by index", "fn f() { let m = #{}; loop { let n = #{}; n.x = m; m = n; } }"),
        (
            "moves without clones",
            "fn f() { let m = #{x: 0}; loop { m.y = #{}; m.y.x = m.remove(\"x\"); m.x = m.remove(\"y\"); } }",
        ),
        ("array moves", "fn f() { let a = [[0], 0]; loop { a[1] = [0]; a[1][0] = a.shift(); a.push(0); } }"),
        ("pad", "fn f() { let s = \"\"; s.pad(9000000000, 'x'); s }"),
        ("array pad", "fn f() { let a = []; a.pad(9000000000, 1); a }"),
        ("range", "fn f() { let n = 0; for i in 0..9000000000 { n += i; } n }"),
        ("caught in a loop", "fn f() { loop { try { loop { } } catch { } } }"),
        ("replace", "fn f() { let s = \"a\"; loop { s.replace(\"a\", \"aaaaaaaa\"); } }"),
    ];
    for (name, text) in hostile {
        let script = compile(Dialect::Projection, text).unwrap_or_else(|e| panic!("{name}: {e}"));

        let begin = now();
        let error = script.call("f", vec![]).expect_err(name);
        let took = begin.elapsed();
        assert!(
            matches!(error.kind, ErrorKind::Limit | ErrorKind::Deadline | ErrorKind::Fault),
            "{name}: {error:?}"
        );
        assert!(error.line > 0 && &*error.file == "t.rhai", "{name}: {error:?}");
        assert!(took < Duration::from_secs(3), "{name} took {took:?}");
    }
}

#[test]
fn deep_nesting_does_not_parse_or_does_not_crash() {
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{", "}"), ("#{a:", "}"), ("-", ""), ("!", ""), ("f(", ")")]
    {
        let text = format!("fn f(x) {{ {}1{} }}", open.repeat(5_000), close.repeat(5_000));
        assert!(compile(Dialect::Projection, &text).is_err(), "{open}");
    }
    let long = format!("fn f() {{ 1{} }}", " + 1".repeat(10_000));
    drop(compile(Dialect::Projection, &long));
    // The deepest calls around the deepest expressions still end in an error or a value, not in the stack.
    let nest = "1 + (".repeat(8);
    let text = format!(
        "fn g(n) {{ if n == 0 {{ 0 }} else {{ {nest} g(n - 1) {} }} }} fn f() {{ g(60) }}",
        ")".repeat(8)
    );
    assert_eq!(run(&text).expect_err("too deep").kind, ErrorKind::Limit);
}

#[test]
fn closures_capture_only_where_they_cannot_be_kept() {
    let kept = [
        "let h = 1; let g = |x| x + h; g.call(1)",
        "let h = 1; let a = []; a.push(|x| x + h); a",
        "let h = 1; |x| x + h",
        "let h = 1; [1].map(|x| |y| y + h)",
    ];
    for text in kept {
        let refused = compile(Dialect::Projection, &format!("fn f() {{ {text} }}")).unwrap_err();
        assert!(refused.contains("error[closure-kept]"), "{text}: {refused}");
    }
    let refused = compile(Dialect::Projection, "fn map(a, g) { g } fn f() { let h = 1; [1].map(|x| x + h) }");
    assert!(refused.unwrap_err().contains("error[closure-kept]"));
    let fine =
        "fn f() { let h = 1; let g = |x| x; [1, 2, 3].filter(|x| x > h).map(|x| g.call(x) + h).len() }";
    assert_eq!(run(fine).unwrap().as_int(), Ok(2));
}

#[test]
fn a_panic_in_the_host_is_an_error_and_the_engine_lives_on() {
    let script = compile(Dialect::Policy, "fn f() { boom() } fn g() { 7 }").unwrap();
    let error = script.call("f", vec![]).unwrap_err();
    assert_eq!((error.kind, error.line), (ErrorKind::Panic, 1));
    assert_eq!(script.call("g", vec![]).unwrap().as_int(), Ok(7));
}

#[test]
fn an_error_names_the_innermost_place_and_the_way_there() {
    let error = run("fn f() {\n  inner(1)\n}\nfn inner(x) {\n  let m = #{a: 1};\n  m.b + x\n}").unwrap_err();
    assert_eq!((error.line, error.column, error.kind), (6, 5, ErrorKind::Fault));
    assert_eq!(error.message, "there is no field `b`; test for it with `\"b\" in …`");
    assert_eq!(error.chain.iter().map(ToString::to_string).collect::<Vec<_>>(), ["`inner` at t.rhai:2"]);
    assert_eq!(error.source_line.as_deref(), Some("  m.b + x"));
    let host = run("fn f() {\n  refuse()\n}").unwrap_err();
    assert_eq!((host.kind, &*host.message, host.line), (ErrorKind::Fault, "the host says no", 2));
    let thrown = run("fn f() { throw #{code: 7} }").unwrap_err();
    assert_eq!((thrown.kind, thrown.thrown), (ErrorKind::Thrown, Some(serde_json::json!({"code": 7}))));
}

#[test]
fn mistakes_are_found_before_anything_runs() {
    let problems = |text: &str| compile(Dialect::Policy, text).unwrap_err();
    assert!(problems("fn f() { let x = ; }").contains("t.rhai:1:18: error[script-syntax]"));
    assert!(problems("fn f() { y }").contains("t.rhai:1:10: error[script-syntax]"));
    let text = "fn a() { let x = ; }\nfn fine() { 1 }\nfn c() {\n  if true {\n}\nfn d() {\n  1 +* 2\n}\n";
    let several = problems(text);
    for place in [
        "t.rhai:1:18: error[script-syntax]",
        "t.rhai:5:1: error[script-syntax]",
        "t.rhai:7:6: error[script-syntax]",
    ] {
        assert!(several.contains(place), "{place}\n{several}");
    }
    assert_eq!(several.matches("error[").count(), 3, "{several}");
    let twice = problems("fn f() { 1 }\nfn f() { 2 }");
    assert!(twice.contains("t.rhai:2:") && twice.matches("error[script-syntax]").count() == 1, "{twice}");
    let unknown = problems("fn f(x) { x.is_emty() }\nfn g() { owns(\"job\", 1) }\nfn h() { f(1, 2) }\nf(1);");
    assert!(
        unknown.contains("t.rhai:1:13: error[unknown-function]: unknown function `is_emty`"),
        "{unknown}"
    );
    assert!(unknown.contains("did you mean `is_empty`?"), "{unknown}");
    assert!(unknown.contains("t.rhai:2:10: error[unknown-function]: unknown function `owns`"), "{unknown}");
    assert!(unknown.contains("error[wrong-arguments]: `f` does not take 2 arguments"), "{unknown}");
    assert!(unknown.contains("t.rhai:4:1: error[script-top-level]"), "{unknown}");
}

#[test]
fn every_call_has_its_own_scope() {
    let script = compile(Dialect::Policy, "fn f(n) { let x = n; x += 1; x }").unwrap();
    for _ in 0..3 {
        assert_eq!(script.call("f", vec![Dynamic::from_int(1)]).unwrap().as_int(), Ok(2));
    }
    assert!(script.call("nope", vec![]).is_err());
}

#[test]
fn libraries_are_called_by_file_name_and_errors_name_their_file() {
    let mut builder = builder(Dialect::Projection);
    let mut diagnostics = Diagnostics::default();
    builder.library(
        &SourceFile::new("scripts/lib/text.rhai", "fn short(s) {\n  inner(s)\n}\nfn inner(s) { s.nope }"),
        &mut diagnostics,
    );
    builder.library(&SourceFile::new("scripts/lib/a-b.rhai", "fn x() { }"), &mut diagnostics);
    let engine = builder.build();
    assert_eq!(diagnostics.0.iter().map(|d| d.code).collect::<Vec<_>>(), ["library-name"]);
    let mut diagnostics = Diagnostics::default();
    let file = SourceFile::new("t.rhai", "fn f() {\n  text::short(1)\n}");
    let script = engine.compile(&file, &mut diagnostics).unwrap_or_else(|| panic!("{diagnostics}"));
    let error = script.call("f", vec![]).unwrap_err();
    assert_eq!((&*error.file, error.line), ("scripts/lib/text.rhai", 4), "{error:?}");
    assert_eq!(
        error.chain.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["`short` at t.rhai:2", "`inner` at scripts/lib/text.rhai:2"]
    );
    let file = SourceFile::new("t.rhai", "fn f() { text::shrt(1) }");
    assert!(engine.compile(&file, &mut diagnostics).is_none());
    assert!(diagnostics.to_string().contains("did you mean `text::short`?"), "{diagnostics}");
}

#[test]
fn accesses_and_touches_tell_what_a_script_reads() {
    let script = compile(
        Dialect::Projection,
        "fn f(caller, args) {\n  caller.scopes.contains(\"x\") && args[\"a\"].b.c == caller.claims.team && args[caller.agent] == 1\n}",
    )
    .unwrap();
    let function = script.function("f", 2).unwrap();
    let found: Vec<String> = script
        .accesses(function)
        .iter()
        .map(|a| {
            let steps: Vec<String> = a
                .steps
                .iter()
                .map(|s| match s {
                    Step::Property(p) => format!(".{p}"),
                    Step::Index(i) => format!("[{}]", i.as_deref().unwrap_or("?")),
                    Step::Method(m) => format!(".{m}()"),
                })
                .collect();
            format!("{}{}", a.root, steps.concat())
        })
        .collect();
    assert_eq!(
        found,
        ["caller.scopes.contains()", "args[a].b.c", "caller.claims.team", "args[?]", "caller.agent"]
    );
    let touches = script.touches();
    assert_eq!(
        touches.properties.into_iter().collect::<Vec<_>>(),
        ["agent", "b", "c", "claims", "scopes", "team"]
    );
    assert_eq!(touches.texts.into_iter().collect::<Vec<_>>(), ["a", "x"]);
    assert!(touches.calls.contains("contains"));
    assert_eq!(touches.computed.len(), 1);
}
