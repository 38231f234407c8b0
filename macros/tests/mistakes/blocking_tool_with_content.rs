#[macros::tool]
fn resize() -> Result<ToolOutput> {
    todo!()
}

fn main() {}
