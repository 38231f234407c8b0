//! Partial results in the data of an error. Their `status` names the reason why the call was cut short.

use alloc::vec::Vec;

use crate::error::RpcError;
use crate::json::Json;
use crate::json::read::for_each_key;
use crate::json::write::Object;

/// Writes `status` into a checkpoint, which is an object without one.
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

/// Adds the partial result to the members of the data of `error`.
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

/// Reads the partial result from the data of an error.
pub(super) fn read_partial(error: &RpcError) -> Option<Json> {
    error.data.as_ref()?.member("partial").filter(Json::is_object)
}
