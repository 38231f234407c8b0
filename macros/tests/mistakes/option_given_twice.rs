#[macros::tool(title = "Resize", title = "Scale")]
async fn resize() {}

fn main() {}
