//! The check of a value against any schema, by the crate `jsonschema`.

use std::sync::LazyLock;

use jsonschema::{Draft, Validator};
use serde_json::Value;

use crate::violations::Violations;

/// A schema, compiled when it is first needed, which takes milliseconds and a megabyte.
pub(crate) struct Checker(Compiled);

/// `Err`: the type's own `JsonSchema` is no schema; then nothing is let through, and it says why.
type Compiled = LazyLock<Result<Validator, String>, Box<dyn FnOnce() -> Result<Validator, String> + Send>>;

/// Values up to this many bytes have all their violations counted. The validator collects them, each with its value, which of
/// megabytes of wrong items is gigabytes.
const LISTED: usize = 64 << 10;

impl Checker {
    pub(crate) fn new(schema: Value) -> Self {
        let compile =
            move || jsonschema::options().with_draft(Draft::Draft202012).build(&schema).map_err(|error| error.to_string());
        Self(LazyLock::new(Box::new(compile)))
    }

    /// Compiles the schema now. Fails if it is none.
    pub(crate) fn check_schema(&self) -> Result<(), &str> {
        self.0.as_ref().map(drop).map_err(String::as_str)
    }

    /// Checks `value`, whose text is `size` bytes long. Fails with all that is wrong with it.
    pub(crate) fn check(&self, value: &Value, size: usize) -> Result<(), String> {
        let validator = self.0.as_ref().map_err(|error| format!("the schema is not valid: {error}"))?;
        if validator.is_valid(value) {
            return Ok(());
        }
        let mut violations = Violations::default();
        if size <= LISTED {
            for error in validator.iter_errors(value) {
                violations.push(error.instance_path(), &error);
            }
        } else if let Err(error) = validator.validate(value) {
            violations.push(error.instance_path(), &error);
        }
        violations.into_result()
    }
}
