//! The quick check of plain arguments: an object of scalars, choices and lists of them, as most tools take it, looked at where it stands.
//!
//! It only ever says that all is well. Whatever it is not sure of is for the validator, which also says what is wrong.

use serde_json::{Map, Value};

use protocol_core::json::{Json, read};

/// A schema that says no more than which members there are and of which kind.
#[derive(Default)]
pub(crate) struct Plain {
    members: Vec<(String, Field)>,
    /// One bit for each of `members` that must be there.
    required: u64,
}

/// As many members have a bit.
const MOST: usize = u64::BITS as usize;

/// The values that a field may have.
#[derive(Default)]
struct Field {
    null: bool,
    boolean: bool,
    integer: bool,
    number: bool,
    string: bool,
    list: bool,
    least: Option<i64>,
    most: Option<i64>,
    /// The JSON of what it is one of, if that is said.
    choices: Vec<String>,
    /// The values that each element of a list may have.
    items: Option<Box<Self>>,
}

impl Plain {
    /// `None` if the schema says anything that is not understood here.
    pub(crate) fn of(schema: &Value) -> Option<Self> {
        let mut plain = Self::default();
        let schema = schema.as_object()?;
        let is_closed_object = schema.get("type")? == "object" && schema.get("additionalProperties")? == false;
        let properties = schema.get("properties")?.as_object().filter(|all| is_closed_object && all.len() <= MOST)?;
        for (name, field) in properties {
            plain.members.push((name.clone(), Field::of(field.as_object()?)?));
        }
        for (key, value) in schema {
            match key.as_str() {
                "type" | "additionalProperties" | "properties" => {}
                "required" => {
                    for name in value.as_array()? {
                        let bit = plain.place(name.as_str()?.as_bytes())?.1;
                        plain.required = Some(plain.required | bit).filter(|all| *all != plain.required)?;
                    }
                }
                _ => is_remark(key, value).then_some(())?,
            }
        }
        Some(plain)
    }

    /// Returns `true` if `arguments` are surely valid, and read alike whether from their text or from their tree.
    pub(crate) fn fits(&self, arguments: &Json) -> bool {
        let Some(members) = read::Members::of(arguments.as_bytes()) else { return false };
        let mut given = 0;
        for (key, value) in members {
            let Some((field, bit)) = key.plain().and_then(|name| self.place(name)) else { return false };
            if given & bit != 0 || !field.fits(value) {
                return false;
            }
            given |= bit;
        }
        given & self.required == self.required
    }

    fn place(&self, name: &[u8]) -> Option<(&Field, u64)> {
        let index = self.members.iter().position(|(known, _)| known.as_bytes() == name)?;
        Some((&self.members.get(index)?.1, 1_u64.checked_shl(index as u32)?))
    }
}

/// Returns `true` if there is a backslash in it.
fn has_escapes(text: &[u8]) -> bool {
    text.contains(&b'\\')
}

/// Returns `true` for a keyword that the validator does not assert, such as a format in this draft.
fn is_remark(key: &str, value: &Value) -> bool {
    key == "default" || (matches!(key, "title" | "description" | "format") && value.is_string())
}

impl Field {
    fn of(schema: &Map<String, Value>) -> Option<Self> {
        let mut field = Self::default();
        for (key, value) in schema {
            match (key.as_str(), value) {
                ("type", Value::String(kind)) => field.allow(kind)?,
                ("type", Value::Array(kinds)) => kinds.iter().try_for_each(|kind| field.allow(kind.as_str()?))?,
                ("minimum", bound) => field.least = Some(bound.as_i64()?),
                ("maximum", bound) => field.most = Some(bound.as_i64()?),
                ("enum", Value::Array(choices)) if !choices.is_empty() => {
                    field.choices = choices.iter().map(ToString::to_string).collect();
                }
                ("items", Value::Object(items)) => field.items = Some(Box::new(Self::of(items)?)),
                _ => is_remark(key, value).then_some(())?,
            }
        }
        // Without a type anything may be there.
        schema.contains_key("type").then_some(field)
    }

    fn allow(&mut self, kind: &str) -> Option<()> {
        let allowed = match kind {
            "null" => &mut self.null,
            "boolean" => &mut self.boolean,
            "integer" => &mut self.integer,
            "number" => &mut self.number,
            "string" => &mut self.string,
            "array" => &mut self.list,
            _ => return None,
        };
        (!core::mem::replace(allowed, true)).then_some(())
    }

    fn fits(&self, value: &[u8]) -> bool {
        if !self.choices.is_empty() && !self.choices.iter().any(|choice| choice.as_bytes() == value) {
            return false;
        }
        match value {
            // After `\u` there may be half a surrogate pair, which some types pass over and a tree does not.
            [b'"', ..] => self.string && !(has_escapes(value) && value.windows(2).any(|two| two == b"\\u")),
            [b'0'..=b'9' | b'-', ..] => self.fits_number(value),
            [b'[', ..] => {
                let item = self.items.as_ref().filter(|_| self.list);
                item.is_some_and(|item| read::elements(value).into_iter().all(|element| item.fits(element)))
            }
            b"true" | b"false" => self.boolean,
            b"null" => self.null,
            _ => false,
        }
    }

    /// A whole number is one without a fraction and an exponent here, and `-0` is none.
    fn fits_number(&self, text: &[u8]) -> bool {
        /// As many digits are exact as `i64`.
        const EXACT: usize = 18;
        /// A number this long without an exponent is finite.
        const LONGEST: usize = 64;
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        if digits.len() <= EXACT && digits.iter().all(u8::is_ascii_digit) && text != b"-0" {
            let size = digits.iter().fold(0_i64, |size, digit| size.wrapping_mul(10).wrapping_add(i64::from(digit & 0xf)));
            let number = if digits.len() < text.len() { size.wrapping_neg() } else { size };
            let within = self.least.is_none_or(|least| least <= number) && self.most.is_none_or(|most| number <= most);
            return within && (self.integer || self.number);
        }
        let bounded = self.least.is_some() || self.most.is_some();
        let has_exponent = text.iter().any(|byte| matches!(byte, b'e' | b'E'));
        self.number && !bounded && !has_exponent && text.len() <= LONGEST && digits.contains(&b'.')
    }
}
