#[macros::prompt]
async fn review() {}

fn main() {}
