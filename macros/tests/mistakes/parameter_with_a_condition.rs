#[macros::tool]
async fn one(#[cfg(unix)] context: Context) {}

#[macros::tool]
async fn two(#[cfg_attr(unix, serde(default))] job: Resize) {}

fn main() {}
