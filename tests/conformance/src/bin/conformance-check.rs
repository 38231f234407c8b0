//! Runs scenarios of our own against any server of MCP: `conformance-check -- COMMAND ARG...` or `conformance-check --url URL`.

#[cfg(unix)]
mod program {
    use std::ffi::OsString;
    use std::io::Write;
    use std::process::ExitCode;
    use std::time::Duration;

    use clap::{ArgGroup, Parser};
    use conformance::check::{Call, Level, Plan, Revision, Target, all, run};
    use serde_json::{Map, Value};

    const HELP: &str = "\
Each scenario starts the command anew, or a session of HTTP, and has an outcome:
  passed   the server does all that it must and should
  warned   it does not do something that it should
  failed   it does not do something that it must; or it died, was silent, flooded its client, or
           was deaf, which is not to read. The frames that crossed are printed: > is to the
           server, < from it
  not run  the server has not what the scenario needs

The slow call should run for three to eight seconds, report progress at least three times a second, and end
when it is cancelled. `trigger-long-running-operation` of server-everything is found without the flag. As the
quick call, a tool without required arguments that says readOnlyHint is found.

Exit status:
  0  no scenario failed
  1  a scenario failed
  2  the command line is invalid, the command cannot be started, nothing listens at the URL, or a tool that was
     named is missing
";

    /// Runs scenarios of cancels, progress, bad frames, back-pressure and disconnects against a server of MCP.
    #[derive(Debug, Parser)]
    #[command(name = "conformance-check", after_help = HELP, group = ArgGroup::new("server").required(true).args(["url", "command", "list"]))]
    struct CommandLine {
        /// Test the server of Streamable HTTP at URL, which begins with http://.
        #[arg(long, value_name = "URL")]
        url: Option<String>,
        /// Call this tool where a call must run for long.
        #[arg(long, value_name = "NAME")]
        slow_tool: Option<String>,
        /// Call the slow tool with these arguments, a JSON object.
        #[arg(long, value_name = "JSON", requires = "slow_tool", value_parser = object)]
        slow_arguments: Option<Map<String, Value>>,
        /// Call this tool where a call must end at once.
        #[arg(long, value_name = "NAME")]
        quick_tool: Option<String>,
        /// Call the quick tool with these arguments, a JSON object.
        #[arg(long, value_name = "JSON", requires = "quick_tool", value_parser = object)]
        quick_arguments: Option<Map<String, Value>>,
        /// Wait at most this long for an answer.
        #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
        timeout: Duration,
        /// Run this scenario alone; may be repeated.
        #[arg(long, value_name = "ID")]
        only: Vec<String>,
        /// Test only this revision, 2025-11-25 or 2026-07-28; may be repeated.
        #[arg(long, value_name = "REVISION", value_parser = revision)]
        revision: Vec<Revision>,
        /// Print one JSON object, with the frames of all scenarios.
        #[arg(long)]
        json: bool,
        /// List the scenarios, as a table in Markdown.
        #[arg(long)]
        list: bool,
        /// The command of the server, after `--`.
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    }

    fn object(text: &str) -> Result<Map<String, Value>, String> {
        serde_json::from_str(text).map_err(|error| format!("is no JSON object: {error}"))
    }

    fn seconds(text: &str) -> Result<Duration, String> {
        let span = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        span.filter(|span| !span.is_zero() && *span <= Duration::from_secs(3600))
            .ok_or_else(|| "is a number above 0, up to 3600".to_owned())
    }

    fn revision(name: &str) -> Result<Revision, String> {
        Revision::ALL.into_iter().find(|revision| revision.name() == name).ok_or_else(|| "is 2025-11-25 or 2026-07-28".to_owned())
    }

    pub(crate) fn main() -> ExitCode {
        let line = CommandLine::parse();
        if line.list {
            return print(&list());
        }
        let target = line.url.map_or(Target::Command(line.command), Target::Url);
        let call =
            |name: Option<String>, arguments: Option<_>| Some(Call { name: name?, arguments: arguments.unwrap_or_default() });
        let mut plan = Plan::new(target);
        plan.slow = call(line.slow_tool, line.slow_arguments);
        plan.quick = call(line.quick_tool, line.quick_arguments);
        plan.timeout = line.timeout;
        plan.only = line.only;
        plan.revisions = line.revision;
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return cannot_run(&error),
        };
        let is_table = !line.json;
        let ran = runtime.block_on(run(plan, |outcome| {
            if is_table {
                let _ = writeln!(std::io::stdout(), "{outcome}");
            }
        }));
        match ran {
            Err(error) => cannot_run(&error),
            Ok(report) => {
                print(&if is_table { report.to_string() } else { report.json().to_string() });
                let [_, _, failed, _] = report.counts();
                ExitCode::from(u8::from(failed > 0))
            }
        }
    }

    fn cannot_run(error: &dyn std::fmt::Display) -> ExitCode {
        let _ = writeln!(std::io::stderr(), "conformance-check: {error}");
        ExitCode::from(2)
    }

    /// Prints text, and returns success. Ignores errors, since a pager may have closed standard output.
    fn print(text: &str) -> ExitCode {
        let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
        ExitCode::SUCCESS
    }

    fn list() -> String {
        let row = |scenario: &conformance::check::Scenario| {
            let level = if scenario.level == Level::Must { "MUST" } else { "SHOULD" };
            format!("| `{}` | {} | {} | {} | {level} |\n", scenario.id, scenario.sentence, scenario.confines(), scenario.section)
        };
        let head = "| Scenario | A server passes if | Only | Rests on | |\n|---|---|---|---|---|\n";
        head.to_owned() + &all().iter().map(row).collect::<String>()
    }
}

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    program::main()
}

#[cfg(not(unix))]
fn main() {
    eprintln!("conformance-check: starts process groups, and runs on Unix alone");
    std::process::exit(2);
}
