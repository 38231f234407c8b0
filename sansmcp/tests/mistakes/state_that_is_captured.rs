use std::sync::Arc;

use sansmcp::prelude::*;

fn main() {
    let names = Arc::new(vec![String::from("a")]);
    let _ = Tool::new("count", move |_: Context, (): ()| async move {
        let names = names;
        Ok(names.len())
    });
}
