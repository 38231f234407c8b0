//! Checks values against any schema, with the crate `jsonschema`.

use std::sync::{LazyLock, Once};

use jsonschema::{Draft, Validator};
use serde_json::{Value, json};

use crate::validation_errors::ValidationErrors;

/// A schema. It is compiled when it is first used, which takes less than 0.1 ms.
pub(crate) struct Checker(Compiled);

/// `Err` if the schema is not valid: a hand-written `JsonSchema` may return such a schema. Then every value is refused with this reason.
type Compiled = LazyLock<Result<Validator, String>, Box<dyn FnOnce() -> Result<Validator, String> + Send>>;

fn compile(schema: &Value) -> Result<Validator, String> {
    jsonschema::options().with_draft(Draft::Draft202012).build(schema).map_err(|error| error.to_string())
}

/// The maximum size, in bytes, of a value whose errors are all collected. For a larger value only one error is collected. The validator
/// stores each error with a copy of the wrong item, so megabytes of wrong items would take gigabytes.
const MAX_LISTED_BYTES: usize = 64 << 10;

impl Checker {
    /// A checker of values against `schema`. `jsonschema` checks every schema but `true`, `false` and `{}` against its meta-schema. The
    /// first checker of a process compiles the meta-schema, which takes about 2 ms, so that no call has to wait for it.
    pub(crate) fn new(schema: Value) -> Self {
        static META_SCHEMA: Once = Once::new();
        META_SCHEMA.call_once(|| drop(compile(&json!({ "type": "object" }))));
        Self(LazyLock::new(Box::new(move || compile(&schema))))
    }

    /// Compiles the schema now. Fails if it is not valid.
    pub(crate) fn check_schema(&self) -> Result<(), &str> {
        self.0.as_ref().map(drop).map_err(String::as_str)
    }

    /// Checks `value`, whose JSON is `size` bytes long. Fails with the text of its validation errors.
    pub(crate) fn check(&self, value: &Value, size: usize) -> Result<(), String> {
        let validator = self.0.as_ref().map_err(|error| format!("the schema is not valid: {error}"))?;
        if validator.is_valid(value) {
            return Ok(());
        }
        let mut errors = ValidationErrors::default();
        if size <= MAX_LISTED_BYTES {
            for error in validator.iter_errors(value) {
                errors.push(error.instance_path(), &error);
            }
        } else if let Err(error) = validator.validate(value) {
            errors.push(error.instance_path(), &error);
        }
        errors.into_result()
    }
}
