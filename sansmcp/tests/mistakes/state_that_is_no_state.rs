use sansmcp::prelude::*;

struct Db;

async fn resize(_: Context, _: Db, (): ()) -> Result<usize> {
    Ok(0)
}

fn main() {
    let _ = Tool::new("resize", resize);
}
