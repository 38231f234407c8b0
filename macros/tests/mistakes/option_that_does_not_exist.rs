#[macros::tool(readonly)]
async fn resize() {}

fn main() {}
