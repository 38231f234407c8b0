use sansmcp::prelude::*;

struct Resized {
    files: usize,
}

async fn resize(_: Context, (): ()) -> Result<Resized> {
    Ok(Resized { files: 0 })
}

fn main() {
    let _ = Tool::new("resize", resize);
}
