use sansmcp::prelude::*;

#[derive(serde::Deserialize)]
struct Job {
    files: Vec<String>,
}

async fn resize(_: Context, job: Job) -> Result<usize> {
    Ok(job.files.len())
}

fn main() {
    let _ = Tool::new("resize", resize);
}
