//! Partial results: the `status` that tells why a call was cut short, and the place of a partial result in the data of an error.

use alloc::vec::Vec;

use crate::error::RpcError;
use crate::json::Json;
use crate::json::read::for_each_key;
use crate::json::write::Object;

/// Returns the checkpoint `partial` with its member `status` set to `status`.
pub(super) fn with_status(partial: &Json, status: &str) -> Json {
    let mut out = Vec::with_capacity(partial.as_bytes().len().saturating_add(32));
    Object::write(&mut out, |object| {
        object.string("status", status);
        for_each_key(partial.as_bytes(), |key, value| {
            if key.name() != "status" {
                object.copy(key, value);
            }
        });
    });
    Json::written(out)
}

/// Returns `error` with the partial result in its data, as the member `partial`. Data of `error` that is no object becomes the
/// member `data` of the new data.
pub(super) fn with_partial(error: &RpcError, partial: &Json) -> RpcError {
    let mut data = Vec::new();
    Object::write(&mut data, |object| {
        match &error.data {
            Some(given) if given.is_object() => for_each_key(given.as_bytes(), |key, value| {
                if key.name() != "partial" {
                    object.copy(key, value);
                }
            }),
            Some(given) => object.json("data", given),
            None => {}
        }
        object.json("partial", partial);
    });
    error.clone().with_data(Json::written(data))
}

/// Reads the partial result from the data of an error. `None` if there is none, or if it is no object.
pub(super) fn read_partial(error: &RpcError) -> Option<Json> {
    error.data.as_ref()?.member("partial").filter(Json::is_object)
}
