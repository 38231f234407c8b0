//! Processes that a test looks for.

use std::fs;

/// Returns `true` if a process of the process group runs. Processes that have ended and are not reaped do not count: some systems take long
/// to reap those that have lost their parent.
pub fn runs(group: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("the processes").filter_map(Result::ok);
    let stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    stats.into_iter().any(|stat| {
        // The name in brackets may contain any character. The state, the parent and the group come after it.
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().take(3).collect();
        matches!(fields[..], [state, _, of] if of == group.trim() && !matches!(state, "Z" | "X"))
    })
}
