//! One level of a JSON value, found in the same pass as what stands around it: what is below stays raw.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

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
            members.push((name.0, value));
        }
        Ok(Shallow::Object(members))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
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
    use super::*;

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
