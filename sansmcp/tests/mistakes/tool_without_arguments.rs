use sansmcp::prelude::*;

async fn greet() -> Result<String> {
    Ok("hello".into())
}

fn main() {
    let _ = Tool::new("greet", greet);
}
