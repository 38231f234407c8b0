//! Values that a transport attaches to the frames of its lanes.

use core::any::{Any, TypeId};
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values that a transport attaches to a frame, at most one of each type, such as the head of an HTTP request or a [`Principal`].
///
/// They are passed to [`Endpoint::handle_frame_by`](crate::Endpoint::handle_frame_by), and handlers of the requests in that frame read them
/// with [`Context::extensions`](crate::Context::extensions). Clones share the values. An empty set allocates no memory.
#[derive(Clone, Default)]
pub struct Extensions {
    values: Option<Arc<Values>>,
}

type Values = BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>;

impl Extensions {
    /// An empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { values: None }
    }

    /// Adds a value. It replaces an earlier value of the same type.
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(self, value: T) -> Self {
        self.with_shared(Arc::new(value))
    }

    /// Adds a shared value. It replaces an earlier value of the same type.
    #[must_use]
    pub fn with_shared<T: Send + Sync + 'static>(mut self, value: Arc<T>) -> Self {
        let values = Arc::make_mut(self.values.get_or_insert_default());
        values.insert(TypeId::of::<T>(), value);
        self
    }

    /// The value of type `T`; `None` if there is none.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.as_ref()?.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// Returns `true` if there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.values.is_none()
    }
}

/// The name of the authenticated caller of a request, set by a layer of the transport. Over HTTP a session belongs to the principal that
/// has opened it. The sealed state of a round is accepted in a retry only from the principal that made the call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// The principal with that name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").field("len", &self.values.as_ref().map_or(0, |values| values.len())).finish_non_exhaustive()
    }
}
