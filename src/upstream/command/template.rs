//! Argument vectors from templates: never a shell, never a word that an argument turned into an option.
//!
//! `run` is an array of words and groups (arrays of words):
//! - `"{name}"` is the argument as one word; an array gives a word for each item; an absent argument none.
//! - `"--n={name}"` is dropped as a whole when the argument is absent, repeated for each item of an array.
//! - `["-n", "{name}"]` is a group: dropped as a whole when one of its arguments is absent.
//! - `"{name?--flag}"` is the word `--flag` where the argument is `true`.
//! - `{{` and `}}` are braces. `{output_dir}` is the folder of a run with `output = "files"`.
//!
//! A word that an argument begins must not begin with `-` unless a literal `--` stands before it.

use serde_json::Value;

use crate::json::{self, Object};

/// Bytes of one word: Linux takes 128 KiB.
const WORD_BYTES_MAX: usize = 100 * 1024;
/// Bytes of the whole vector: Linux takes 2 MiB with the environment.
const VECTOR_BYTES_MAX: usize = 512 * 1024;
/// Words of the vector.
const WORDS_MAX: usize = 4096;
/// The name of the folder of a run's files.
pub(super) const OUTPUT_DIR: &str = "output_dir";

/// A compiled `run`.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::upstream) struct Template {
    groups: Vec<Vec<Word>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Word {
    /// Literal and argument pieces in turn.
    Pieces(Vec<Piece>),
    /// A word that is there where the argument is true.
    Switch(String, String),
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Argument(String),
}

impl Template {
    /// Compiles `run`: each entry a word or a group of words. The error says what is wrong with it.
    pub(in crate::upstream) fn compile(run: &[Vec<String>]) -> Result<Self, String> {
        let mut groups = Vec::with_capacity(run.len());
        for words in run {
            groups.push(words.iter().map(|w| word(w)).collect::<Result<Vec<_>, _>>()?);
        }
        let template = Self { groups };
        if template.program().is_none() {
            return Err("the first word must be a program, without placeholders".to_owned());
        }
        Ok(template)
    }

    /// The program: the first word, which is literal.
    pub(in crate::upstream) fn program(&self) -> Option<&str> {
        match self.groups.first()?.first()? {
            Word::Pieces(pieces) => match pieces.as_slice() {
                [Piece::Text(text)] if !text.is_empty() => Some(text),
                _ => None,
            },
            Word::Switch(..) => None,
        }
    }

    /// The arguments it names.
    pub(in crate::upstream) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().flatten().flat_map(Word::arguments).filter(|n| *n != OUTPUT_DIR)
    }

    /// The vector for these arguments. `value_of` gives the argument or its default; the error names the
    /// argument and what is wrong with it.
    pub(super) fn expand<'a>(
        &self,
        value_of: &dyn Fn(&str) -> Option<&'a Value>,
    ) -> Result<Vec<String>, (String, String)> {
        let mut out: Vec<String> = Vec::new();
        let mut bytes = 0;
        let mut guarded = true;
        for group in &self.groups {
            let present = |n: &&str| value_of(n).is_some_and(|v| !v.is_null());
            if !group.iter().flat_map(Word::arguments).all(|n| present(&n)) {
                continue;
            }
            for word in group {
                for text in word.expand(value_of, guarded)? {
                    bytes += text.len();
                    if text == "--" {
                        guarded = false;
                    }
                    out.push(text);
                }
                let name = || word.arguments().next().unwrap_or_default().to_owned();
                if bytes > VECTOR_BYTES_MAX || out.len() > WORDS_MAX {
                    return Err((name(), "the arguments are longer than a program takes".to_owned()));
                }
            }
        }
        Ok(out)
    }
}

/// Splits a word at its placeholders.
fn word(text: &str) -> Result<Word, String> {
    if text.contains('\0') {
        return Err("a word has a NUL character".to_owned());
    }
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' | '}' if chars.peek() == Some(&c) => {
                literal.push(c);
                chars.next();
            }
            '}' => return Err(format!("`{text}` has a `}}` without its `{{`; write `}}}}` for a brace")),
            '{' => {
                let inner: String = chars.by_ref().take_while(|c| *c != '}').collect();
                if let Some((name, switch)) = inner.split_once('?') {
                    if !pieces.is_empty() || !literal.is_empty() || chars.peek().is_some() {
                        return Err(format!("`{text}`: a switch must be a word of its own"));
                    }
                    return Ok(Word::Switch(name.to_owned(), switch.to_owned()));
                }
                let named = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
                if inner.is_empty() || !inner.chars().all(named) {
                    return Err(format!(
                        "`{text}`: `{{{inner}}}` names no argument; write `{{{{` for a brace"
                    ));
                }
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Argument(inner));
            }
            c => literal.push(c),
        }
    }
    if !literal.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(Word::Pieces(pieces))
}

impl Word {
    fn arguments(&self) -> impl Iterator<Item = &str> {
        let (pieces, switch): (&[Piece], Option<&str>) = match self {
            Self::Pieces(pieces) => (pieces, None),
            Self::Switch(..) => (&[], None),
        };
        let named = pieces.iter().filter_map(|p| match p {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        });
        named.chain(switch)
    }

    fn expand<'a>(
        &self,
        value_of: &dyn Fn(&str) -> Option<&'a Value>,
        guarded: bool,
    ) -> Result<Vec<String>, (String, String)> {
        let pieces = match self {
            Self::Switch(name, text) => {
                let on = value_of(name) == Some(&Value::Bool(true));
                return Ok(if on { vec![text.clone()] } else { Vec::new() });
            }
            Self::Pieces(pieces) => pieces,
        };
        let items = pieces.iter().find_map(|p| match p {
            Piece::Argument(name) => Some(value_of(name)?.as_array()?.len()),
            Piece::Text(_) => None,
        });
        (0..items.unwrap_or(1)).map(|at| one(pieces, value_of, guarded, at)).collect()
    }
}

/// One word; of an array its item `at`.
fn one<'a>(
    pieces: &[Piece],
    value_of: &dyn Fn(&str) -> Option<&'a Value>,
    guarded: bool,
    at: usize,
) -> Result<String, (String, String)> {
    let mut out = String::new();
    for piece in pieces {
        let name = match piece {
            Piece::Text(text) => {
                out.push_str(text);
                continue;
            }
            Piece::Argument(name) => name,
        };
        let refuse = |why: &str| Err((name.clone(), why.to_owned()));
        let value = match value_of(name) {
            Some(Value::Array(items)) => items.get(at),
            other => other,
        };
        let text = match value {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => json::to_text(other),
        };
        if text.contains('\0') {
            return refuse("it has a NUL character");
        }
        if text.len() > WORD_BYTES_MAX {
            return refuse("it is longer than a program takes");
        }
        if guarded && out.is_empty() && text.starts_with('-') {
            return refuse("it must not begin with `-`: the program would take it for an option");
        }
        out.push_str(&text);
    }
    Ok(out)
}

/// The argument's own value, else the default of its schema.
pub(super) fn value_of<'a>(arguments: &'a Object, defaults: &'a Object, name: &str) -> Option<&'a Value> {
    arguments.get(name).or_else(|| defaults.get(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn template(run: &[&[&str]]) -> Template {
        let run: Vec<Vec<String>> = run.iter().map(|g| g.iter().map(|w| (*w).to_owned()).collect()).collect();
        Template::compile(&run).unwrap()
    }

    fn expand(run: &[&[&str]], arguments: &Value) -> Result<Vec<String>, (String, String)> {
        let arguments = arguments.as_object().unwrap();
        template(run).expand(&|n| arguments.get(n))
    }

    #[test]
    fn absent_arguments_take_their_words_and_groups_with_them() {
        let run: &[&[&str]] =
            &[&["git"], &["log"], &["-n", "{n}"], &["--since={since}"], &["{all?--all}"], &["{rev}"]];
        assert_eq!(expand(run, &json!({})).unwrap(), ["git", "log"]);
        let all = json!({"n": 3, "since": "-1 week; rm -rf /", "all": true, "rev": "HEAD"});
        assert_eq!(
            expand(run, &all).unwrap(),
            ["git", "log", "-n", "3", "--since=-1 week; rm -rf /", "--all", "HEAD"]
        );
        assert_eq!(expand(run, &json!({"all": false, "n": null})).unwrap(), ["git", "log"]);
    }

    #[test]
    fn arrays_expand_and_options_cannot_be_smuggled() {
        let run: &[&[&str]] = &[&["grep"], &["-e={p}"], &["--"], &["{files}"]];
        let words = expand(run, &json!({"p": ["a", "b"], "files": ["-x", "y z"]})).unwrap();
        assert_eq!(words, ["grep", "-e=a", "-e=b", "--", "-x", "y z"]);
        let (name, why) =
            expand(&[&["git"], &["show"], &["{rev}"]], &json!({"rev": "--output=/etc/x"})).unwrap_err();
        assert_eq!(name, "rev");
        assert!(why.contains("must not begin with `-`"), "{why}");
        assert!(expand(&[&["x"], &["{a}{b}"]], &json!({"a": "", "b": "-y"})).is_err());
        assert!(expand(&[&["x"], &["{a}"]], &json!({"a": "b\0c"})).is_err());
    }

    #[test]
    fn mistakes_of_a_template_are_told() {
        for bad in [&["{prog}"][..], &["x", "{"], &["x", "a}"], &["x", "{a b}"], &["x", "y{f?--z}"], &[""]] {
            let run: Vec<Vec<String>> = bad.iter().map(|w| vec![(*w).to_owned()]).collect();
            assert!(Template::compile(&run).is_err(), "{bad:?}");
        }
        assert_eq!(
            template(&[&["awk"], &["{{print $1}}"]]).expand(&|_| None).unwrap(),
            ["awk", "{print $1}"]
        );
    }

    proptest! {
        #[test]
        fn a_value_is_one_word_and_never_an_option(text in "\\PC{0,30}") {
            let value = json!({"v": text});
            match expand(&[&["p"], &["{v}"], &["--k={v}"]], &value) {
                Ok(words) => {
                    prop_assert_eq!(&words, &["p".to_owned(), text.clone(), format!("--k={text}")]);
                    prop_assert!(!text.starts_with('-'));
                }
                Err(_) => prop_assert!(text.starts_with('-')),
            }
        }
    }
}
