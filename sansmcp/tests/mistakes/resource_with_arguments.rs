use sansmcp::prelude::*;

async fn manual(_: Context, page: u32) -> Result<ResourceContents> {
    Ok(format!("page {page}").into())
}

fn main() {
    let _ = Resource::new("words://manual", "manual", manual);
}
