//! Whole numbers in arguments. A number that is too small or too large is replaced, and not rejected.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A whole number from an argument. Numbers of any size are accepted: a number below `MIN` becomes `DEFAULT`, a number above `MAX` becomes
/// `MAX`.
///
/// Its schema is just `integer`, so that the check of arguments accepts every size; the bounds are in the description of the field. As in
/// JSON Schema, `3.0` is an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Count<const DEFAULT: u64, const MAX: u64 = { u64::MAX }, const MIN: u64 = 1>(u64);

impl<const DEFAULT: u64, const MAX: u64, const MIN: u64> Count<DEFAULT, MAX, MIN> {
    /// The number.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// The number as milliseconds.
    pub(crate) const fn millis(self) -> Duration {
        Duration::from_millis(self.0)
    }

    const fn fit(asked: u64) -> Self {
        match asked {
            asked if asked < MIN => Self(DEFAULT),
            asked if asked > MAX => Self(MAX),
            asked => Self(asked),
        }
    }
}

impl<const DEFAULT: u64, const MAX: u64, const MIN: u64> Default for Count<DEFAULT, MAX, MIN> {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

impl<'de, const DEFAULT: u64, const MAX: u64, const MIN: u64> Deserialize<'de> for Count<DEFAULT, MAX, MIN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole<const DEFAULT: u64, const MAX: u64, const MIN: u64>;

        impl<const DEFAULT: u64, const MAX: u64, const MIN: u64> Visitor<'_> for Whole<DEFAULT, MAX, MIN> {
            type Value = Count<DEFAULT, MAX, MIN>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Count::fit(number))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(u64::try_from(number).map_or_else(|_| Count::default(), Count::fit))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                if number.fract() != 0.0 {
                    return Err(E::invalid_type(Unexpected::Float(number), &self));
                }
                // The cast saturates.
                if number < 0.0 { Ok(Count::default()) } else { Ok(Count::fit(number as u64)) }
            }
        }

        deserializer.deserialize_any(Whole)
    }
}

impl<const DEFAULT: u64, const MAX: u64, const MIN: u64> JsonSchema for Count<DEFAULT, MAX, MIN> {
    fn schema_name() -> Cow<'static, str> {
        "integer".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<const DEFAULT: u64, const MAX: u64, const MIN: u64>(text: &str) -> Result<u64, String> {
        serde_json::from_str::<Count<DEFAULT, MAX, MIN>>(text).map(Count::get).map_err(|error| error.to_string())
    }

    #[test]
    fn a_number_below_the_minimum_is_the_default_and_one_above_the_maximum_is_the_maximum() {
        for (text, number) in
            [("0", 5), ("-1", 5), ("-1e300", 5), ("1", 1), ("100", 100), ("101", 100), ("18446744073709551616", 100)]
        {
            assert_eq!(read::<5, 100, 1>(text), Ok(number), "{text}");
        }
        assert_eq!(read::<10, 3600, 0>("0"), Ok(0));
        assert_eq!(read::<10, 3600, 0>("-0.0"), Ok(0));
        assert_eq!(read::<10, 3600, 0>("-1"), Ok(10));
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_fraction_of_zero() {
        assert_eq!(read::<5, 100, 1>("3.0"), Ok(3));
        assert_eq!(read::<5, 100, 1>("1e30"), Ok(100));
    }

    #[test]
    fn anything_but_a_whole_number_is_refused() {
        for text in ["1.5", "\"3\"", "null", "true", "[3]", "{}"] {
            let refused = read::<5, 100, 1>(text).expect_err(text);
            assert!(refused.contains("an integer"), "{text}: {refused}");
        }
    }
}
