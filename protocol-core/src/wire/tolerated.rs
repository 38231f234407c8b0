//! The count of what was read although it breaks a rule.

use core::cell::Cell;

use crate::json::cursor::IndexedObject;

/// Counts the faults of a frame that do not keep it from being read, such as `null` for a member that is absent.
#[derive(Debug, Default)]
pub(crate) struct Tolerated(Cell<u64>);

impl Tolerated {
    /// Counts one fault.
    pub(crate) fn count(&self) {
        self.count_all(1);
    }

    /// Counts the members of `params` that are `null`, apart from those that may be any JSON.
    pub(crate) fn count_nulls(&self, params: Option<&IndexedObject<'_>>, of_any_kind: &[&str]) {
        if let Some(params) = params {
            self.count_all(params.nulls(of_any_kind));
        }
    }

    /// The number of faults.
    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }

    fn count_all(&self, faults: u64) {
        self.0.set(self.0.get().saturating_add(faults));
    }
}
