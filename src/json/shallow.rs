//! One level of a JSON value, found in the same pass as what stands around it: what is below stays raw.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::walk::{NotJson, Walk};
use crate::limits::LEVEL_ITEMS_MAX;

/// Steps over an object and gives its members in order, repeated names included, each name without its quotes: long texts
/// are passed faster than the parser passes them. An error also where a name has an escape, or there are more than
/// [`LEVEL_ITEMS_MAX`] members: then the parser is to be asked, whose message is told.
pub fn members_of<'a>(walk: &mut Walk<'a>) -> Result<Vec<(&'a str, &'a str)>, NotJson> {
    let mut found = Vec::new();
    each_member(walk, |walk, name| {
        if found.len() == LEVEL_ITEMS_MAX {
            return Err(NotJson);
        }
        found.push((name, walk.skip()?));
        Ok(())
    })?;
    Ok(found)
}

/// Goes through the members of the object that a text is: `member` has the name of each and steps over its value.
/// `None` where the parser is to be asked, as above.
pub fn walk_members<'a>(
    text: &'a str,
    member: impl FnMut(&mut Walk<'a>, &'a str) -> Result<(), NotJson>,
) -> Option<()> {
    let mut walk = Walk::new(text);
    each_member(&mut walk, member).and_then(|()| walk.end()).ok()
}

fn each_member<'a>(
    walk: &mut Walk<'a>,
    mut member: impl FnMut(&mut Walk<'a>, &'a str) -> Result<(), NotJson>,
) -> Result<(), NotJson> {
    if walk.peek() != b'{' {
        return Err(NotJson);
    }
    walk.members(|walk, name| member(walk, unescaped(name).ok_or(NotJson)?))
}

/// A JSON text's own text, where nothing in it is escaped; `None` also for what is no text.
pub fn unescaped(raw: &str) -> Option<&str> {
    let text = raw.strip_prefix('"')?.strip_suffix('"')?;
    (!text.contains('\\')).then_some(text)
}

/// A value of which one level is looked at. Read as a member with `#[serde(borrow, default)]`, an absent one is as
/// `null`; no type is refused.
#[derive(Debug, Default)]
pub enum Shallow<'a> {
    /// `null`, or nothing.
    #[default]
    Null,
    /// The members of an object in order, repeated names included; names borrowed where no escape stands in them.
    Object(Vec<(Cow<'a, str>, &'a RawValue)>),
    /// The elements of a list.
    List(Vec<&'a RawValue>),
    /// A text, a number or a flag.
    Scalar,
}

impl<'de: 'a, 'a> Deserialize<'de> for Shallow<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneLevel)
    }
}

/// Refuses one more than [`LEVEL_ITEMS_MAX`].
fn bounded<E: serde::de::Error>(found: usize) -> Result<(), E> {
    let full =
        || E::custom(format_args!("more than {LEVEL_ITEMS_MAX} members or elements stand in one place"));
    (found < LEVEL_ITEMS_MAX).then_some(()).ok_or_else(full)
}

/// A member's name: within a `Cow` of its own serde borrows, within a tuple it always copies.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

struct OneLevel;

impl<'de> Visitor<'de> for OneLevel {
    type Value = Shallow<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut members = Vec::new();
        while let Some((name, value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
            bounded(members.len())?;
            members.push((name.0, value));
        }
        Ok(Shallow::Object(members))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            bounded(elements.len())?;
            elements.push(element);
        }
        Ok(Shallow::List(elements))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Shallow::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Shallow::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Shallow::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Shallow::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Shallow::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Shallow::Scalar)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn members_that_a_walk_finds_are_those_that_the_parser_finds(
            text in "[{][ \n]?(\"(a|b|\\\\u0061|é)?\" ?: ?(1|-2.5|\"x\\\\\"y\"|\\[1, 2\\]|[{]\"c\":0[}]|nul|null),?){0,4}[}] ?x?",
        ) {
            let parsed = serde_json::from_str::<Shallow<'_>>(&text).ok();
            let mut walk = Walk::new(&text);
            let found = members_of(&mut walk).ok().filter(|_| walk.end().is_ok());
            prop_assert!(found.is_some() || parsed.is_none() || text.contains("\\u0061"), "{} is passed over", text);
            if let Some(found) = found {
                let Some(Shallow::Object(parsed)) = parsed else { panic!("{text} is no object") };
                let parsed: Vec<_> = parsed.iter().map(|(name, value)| (&**name, value.get())).collect();
                prop_assert_eq!(found, parsed);
            }
        }
    }

    #[test]
    fn a_level_is_bounded_and_the_parser_says_so() {
        for (open, item, close) in [('{', "\"a\":1", '}'), ('[', "1", ']')] {
            let text = |items: usize| format!("{open}{}{close}", vec![item; items].join(","));
            let (most, more) = (text(LEVEL_ITEMS_MAX), text(LEVEL_ITEMS_MAX + 1));
            assert!(serde_json::from_str::<Shallow<'_>>(&most).is_ok());
            let refused = serde_json::from_str::<Shallow<'_>>(&more).unwrap_err().to_string();
            assert!(refused.contains("more than 20000 members or elements"), "{refused}");
            assert_eq!(members_of(&mut Walk::new(&most)).is_ok(), open == '{');
            assert!(members_of(&mut Walk::new(&more)).is_err());
        }
    }

    #[test]
    fn one_level_is_read_of_a_value_of_any_type() {
        let read = |text: &'static str| serde_json::from_str::<Shallow<'_>>(text).unwrap();
        let Shallow::Object(members) = read(r#"{ "a" : [1, 2] ,"n\u0061me":"t","a":{}}"#) else { panic!() };
        let members: Vec<_> = members.iter().map(|(name, value)| (&**name, value.get())).collect();
        assert_eq!(members, [("a", "[1, 2]"), ("name", "\"t\""), ("a", "{}")]);
        let Shallow::List(elements) = read(r#"[{"b": 1}, 7]"#) else { panic!() };
        assert_eq!(elements.iter().map(|e| e.get()).collect::<Vec<_>>(), [r#"{"b": 1}"#, "7"]);
        assert!(matches!(read("null"), Shallow::Null));
        for scalar in ["\"x\"", "\"\\n\"", "-1", "1.5", "18446744073709551615", "true"] {
            assert!(matches!(read(scalar), Shallow::Scalar), "{scalar}");
        }
    }
}
