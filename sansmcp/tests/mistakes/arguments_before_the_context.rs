use sansmcp::prelude::*;

#[args]
struct Job {
    files: Vec<String>,
}

async fn resize(job: Job, _: Context) -> Result<usize> {
    Ok(job.files.len())
}

fn main() {
    let _ = Tool::new("resize", resize);
}
