//! Values that a transport attaches to what comes by one of its lanes.

use core::any::{Any, TypeId};
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values of a transport, at most one of each type: the head of an HTTP request, the principal that a layer has checked.
///
/// [`Endpoint::handle_frame_by`](crate::Endpoint::handle_frame_by) takes them, and the handlers of that frame's requests see them by
/// [`Context::extensions`](crate::Context::extensions). Cloning shares the values. An empty one takes no memory.
#[derive(Clone, Default)]
pub struct Extensions {
    values: Option<Arc<Values>>,
}

type Values = BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>;

impl Extensions {
    /// No values.
    #[must_use]
    pub const fn new() -> Self {
        Self { values: None }
    }

    /// Adds a value, in the place of the one of its type if there is one.
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        let values = Arc::make_mut(self.values.get_or_insert_default());
        values.insert(TypeId::of::<T>(), Arc::new(value));
        self
    }

    /// The value of a type.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.as_ref()?.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// Says whether there is no value.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.values.is_none()
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").field("len", &self.values.as_ref().map_or(0, |values| values.len())).finish_non_exhaustive()
    }
}
