//! The display of progress on stderr: a live bar on a terminal, one line for each update elsewhere.

use std::borrow::Cow;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use protocol_core::{LogRecord, Progress, Unreadable, Violation};

/// The length of a bar in units. Progress is a fraction, and the bar counts whole numbers.
const PARTS: f64 = 1_000_000.0;

/// Shows progress, logs and questions on stderr, so that they do not overwrite each other.
pub(super) struct Display {
    state: Mutex<State>,
    /// The number of frames of the server that are no message.
    unreadable: AtomicUsize,
    /// The last response of the server that names no request.
    astray: Mutex<Option<String>>,
}

/// The maximum number of frames that are no message and are shown. A server may write a whole log to its standard output.
const MAX_UNREADABLE: usize = 3;

struct State {
    /// The newest value, total and message of the updates so far.
    shown: Progress,
    updates: u64,
    /// The target of the bar; `None` to write lines instead.
    target: Option<fn() -> ProgressDrawTarget>,
    /// The bar; `None` before and after the call, and while a person is asked.
    bar: Option<ProgressBar>,
    /// The number of questions that the person is asked now.
    asking: usize,
    over: bool,
}

impl Display {
    /// Shows a bar if stderr is a terminal, and lines otherwise.
    pub(super) fn on_stderr() -> Self {
        Self::new(stderr().is_terminal().then_some(ProgressDrawTarget::stderr))
    }

    fn new(target: Option<fn() -> ProgressDrawTarget>) -> Self {
        let state = State { shown: Progress::default(), updates: 0, target, bar: None, asking: 0, over: false };
        Self { state: Mutex::new(state), unreadable: AtomicUsize::new(0), astray: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the display; on a terminal, `what` is shown until the first update.
    pub(super) fn begin(&self, what: &str) {
        let mut state = self.state();
        state.shown = Progress::message(one_line(what));
        state.draw();
    }

    /// Shows an update. Returns the number of updates so far.
    pub(super) fn update(&self, progress: &Progress) -> u64 {
        let mut state = self.state();
        state.updates = state.updates.saturating_add(1);
        if progress.value.is_some() {
            state.shown.value = progress.value;
            state.shown.total = progress.total;
        }
        if progress.message.is_some() || state.updates == 1 {
            state.shown.message = progress.message.as_ref().map(|message| one_line(message).into());
        }
        if state.target.is_some() {
            state.draw();
        } else {
            say(&line(progress));
        }
        state.updates
    }

    /// Ends the display. If there was an update, the bar stays visible as it was drawn last. A second call has no effect.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.target = None;
        if std::mem::replace(&mut state.over, true) {
            return;
        }
        if state.asking > 0 {
            // Starts a new line after the question.
            say("");
        }
        let Some(bar) = state.bar.take() else { return };
        if state.updates == 0 {
            bar.finish_and_clear();
            return;
        }
        if bar.length().is_some() {
            bar.set_style(past_style());
        }
        bar.abandon();
        // Ends the line of the bar.
        say("");
    }

    /// Returns `true` if the display has ended, because the call has ended or was interrupted.
    pub(super) fn is_over(&self) -> bool {
        self.state().over
    }

    /// Shows a log record of the server.
    pub(super) fn log(&self, record: &LogRecord) {
        self.print(&log_line(record));
    }

    /// Shows a frame of the server that is no message, or that answers no request, unless there were many before.
    pub(super) fn unreadable(&self, frame: &Unreadable) {
        if frame.rule == Violation::UnknownResponse {
            *self.astray.lock().unwrap_or_else(PoisonError::into_inner) = Some(one_line(&frame.to_string()));
        }
        let shown = self.unreadable.fetch_add(1, Ordering::Relaxed);
        let more = if shown + 1 == MAX_UNREADABLE { "; further ones are not shown" } else { "" };
        if shown < MAX_UNREADABLE {
            let what = if frame.rule == Violation::UnknownResponse { "" } else { "something else than a message: " };
            self.print(&one_line(&format!("call: the server has sent {what}{frame}{more}")));
        }
    }

    /// The end of a message about a timeout: the last response of the server that names no request, if there was one.
    pub(super) fn astray(&self) -> String {
        let astray = self.astray.lock().unwrap_or_else(PoisonError::into_inner);
        astray.as_ref().map_or_else(String::new, |frame| format!("; the server has sent {frame}"))
    }

    /// Prints a line above the bar.
    pub(super) fn print(&self, line: &str) {
        match &self.state().bar {
            Some(bar) => bar.suspend(|| say(line)),
            None => say(line),
        }
    }

    /// Hides the bar while a question is asked, until the returned value is dropped.
    pub(super) fn hide_bar(&self) -> HiddenBar<'_> {
        let mut state = self.state();
        state.asking += 1;
        if let Some(bar) = state.bar.take() {
            bar.finish_and_clear();
        }
        HiddenBar(self)
    }
}

/// Hides the bar until it is dropped.
pub(super) struct HiddenBar<'a>(&'a Display);

impl Drop for HiddenBar<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.asking -= 1;
        state.draw();
    }
}

impl State {
    fn draw(&mut self) {
        let Some(target) = self.target else { return };
        if self.asking > 0 {
            return;
        }
        let fraction = fraction(&self.shown);
        let style = if fraction.is_some() { bar_style() } else { spinner_style() };
        let had_total = self.bar.as_ref().map(|bar| bar.length().is_some());
        let bar = self.bar.get_or_insert_with(|| ProgressBar::with_draw_target(None, target()).with_style(style.clone()));
        if had_total != Some(fraction.is_some()) {
            bar.set_style(style);
        }
        match fraction {
            Some(fraction) => {
                bar.set_length(PARTS as u64);
                bar.set_position((fraction * PARTS) as u64);
            }
            None => bar.unset_length(),
        }
        bar.set_prefix(numbers(&self.shown));
        bar.set_message(match fraction {
            Some(_) => self.shown.message.as_deref().unwrap_or_default().to_owned(),
            None => line(&self.shown),
        });
        if had_total != Some(fraction.is_some()) {
            // The estimate ignores progress from before the bar was shown.
            bar.reset_eta();
        }
        if had_total.is_none() {
            // Redraws the estimate and the spinner between two updates.
            bar.enable_steady_tick(Duration::from_millis(100));
        }
    }
}

fn bar_style() -> ProgressStyle {
    template("[{bar:28}] {prefix} eta {eta} {wide_msg}")
}

/// The style of a bar that has ended.
fn past_style() -> ProgressStyle {
    template("[{bar:28}] {prefix} in {elapsed} {wide_msg}")
}

fn spinner_style() -> ProgressStyle {
    template("{spinner} {elapsed} {wide_msg}")
}

fn template(text: &str) -> ProgressStyle {
    // The tests draw all templates, so this cannot fail.
    ProgressStyle::with_template(text).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// An update in one line: `i/total percent message`, without the parts that it lacks.
pub(super) fn line(progress: &Progress) -> String {
    let numbers = numbers(progress);
    let message = progress.message.as_ref().map(|message| one_line(message)).unwrap_or_default();
    match (numbers.is_empty(), message.is_empty()) {
        (false, false) => format!("{numbers} {message}"),
        _ => numbers + &message,
    }
}

/// A log record in one line: `[level] logger: text`.
fn log_line(record: &LogRecord) -> String {
    let text = record.data.as_text_lossy().map_or_else(|| record.data.to_string(), |text| text.to_string());
    let logger = record.logger.as_ref().map(|logger| format!("{logger}: ")).unwrap_or_default();
    one_line(&format!("[{}] {logger}{text}", record.level))
}

fn numbers(progress: &Progress) -> String {
    match (progress.value, progress.total) {
        (Some(value), Some(total)) => match fraction(progress) {
            // At most 99%, so that 100% is shown only at the end.
            Some(part) if part < 1.0 => format!("{}/{} {:.0}%", number(value), number(total), (part * 100.0).min(99.0)),
            Some(_) => format!("{}/{} 100%", number(value), number(total)),
            None => format!("{}/{}", number(value), number(total)),
        },
        (Some(value), None) => number(value),
        (None, _) => String::new(),
    }
}

/// The value as a share of the total, from 0 to 1.
fn fraction(progress: &Progress) -> Option<f64> {
    let (value, total) = (progress.value?, progress.total?);
    (total > 0.0).then(|| (value / total).clamp(0.0, 1.0))
}

/// A number with at most three digits after the point, or more if it would be shown as 0.
fn number(number: f64) -> String {
    // Very large and very small numbers are in scientific notation, since a server may send numbers of any size.
    if number != 0.0 && !(1e-9..1e15).contains(&number.abs()) {
        return format!("{number:e}");
    }
    if number != 0.0 && number.abs() < 0.001 {
        return number.to_string();
    }
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `text` in one line, without characters that move the cursor, so that a peer cannot overwrite the screen.
pub(super) fn one_line(text: &str) -> String {
    text.split(is_unseen).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Replaces the characters of `text` that are unsafe on a terminal: control characters, except line feeds and tabs, and characters that
/// change the direction of text.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    let is_harmful = |char: char| is_unseen(char) && !matches!(char, '\n' | '\t');
    if text.contains(is_harmful) { text.replace(is_harmful, "\u{fffd}").into() } else { text.into() }
}

/// `text` in one line, with control characters and characters that change its direction escaped, as in `\u{202e}`.
pub(super) fn visible(text: &str) -> String {
    let written = |char: char| if is_unseen(char) { char.escape_default().to_string() } else { char.to_string() };
    text.chars().map(written).collect()
}

/// Returns `true` for control characters, and for those that change the direction of text.
fn is_unseen(char: char) -> bool {
    char.is_control() || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes a line to stderr. An error is ignored, since it cannot be reported.
fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, LazyLock};

    use indicatif::TermLike;
    use protocol_core::{Json, Level};

    use super::*;

    #[test]
    fn control_characters_of_a_peer_are_never_printed() {
        assert_eq!(printable("a\tb\nc é"), "a\tb\nc é");
        assert_eq!(printable("\x1b[2J\u{9b}1m\u{202e}x\r"), "\u{fffd}[2J\u{fffd}1m\u{fffd}x\u{fffd}");
        assert_eq!(one_line("a\x1b[2Jb\u{202e}c\nd"), "a [2Jb c d");
        assert_eq!(visible("a\x1b[2Jb\u{202e}c\nd\u{200f}é"), "a\\u{1b}[2Jb\\u{202e}c\\nd\\u{200f}é");
    }

    #[test]
    fn very_large_and_very_small_numbers_are_printed_short() {
        assert_eq!(numbers(&Progress::value(1e308)), "1e308");
        assert_eq!(numbers(&Progress::value(5e-324)), "5e-324");
    }

    fn update(value: f64, total: Option<f64>, message: &str) -> Progress {
        let update = Progress::value(value).with_message(message);
        match total {
            Some(total) => update.with_total(total),
            None => update,
        }
    }

    #[test]
    fn a_line_has_the_value_the_total_and_the_message() {
        assert_eq!(line(&update(3.0, Some(20.0), "step 3/20")), "3/20 15% step 3/20");
        assert_eq!(line(&update(0.1 + 0.2, Some(1.0), "")), "0.3/1 30%");
        assert_eq!(line(&update(999.0, Some(1000.0), "")), "999/1000 99%");
        assert_eq!(line(&update(1.0, Some(6.0), "")), "1/6 17%");
        assert_eq!(line(&update(6.0, Some(6.0), "")), "6/6 100%");
        assert_eq!(line(&update(29.0, Some(100.0), "")), "29/100 29%");
        assert_eq!(line(&update(1e-6, Some(1e-5), "tiny")), "0.000001/0.00001 10% tiny");
        assert_eq!(line(&update(1000.0, None, "so far")), "1000 so far");
        assert_eq!(line(&update(0.0, Some(0.0), "nothing to do")), "0/0 nothing to do");
        assert_eq!(line(&update(-3.0, Some(2.0), "a peer may")), "-3/2 0% a peer may");
        assert_eq!(line(&Progress::message("only words")), "only words");
        assert_eq!(line(&Progress::default()), "");
    }

    #[test]
    fn a_message_cannot_move_the_cursor() {
        assert_eq!(line(&update(1.0, None, "one\r\n\u{1b}[2Jtwo\n")), "1 one [2Jtwo");
    }

    /// A terminal that records its output.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn take(&self) -> String {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_terminal_shows_a_bar_if_there_is_a_total_and_a_spinner_otherwise() {
        static SCREEN: LazyLock<Screen> = LazyLock::new(Screen::default);
        let display = Display::new(Some(|| ProgressDrawTarget::term_like(Box::new(SCREEN.clone()))));
        display.begin("progress");
        assert!(SCREEN.take().contains("progress"));

        assert_eq!(display.update(&update(5.0, Some(20.0), "step 5/20")), 1);
        let drawn = SCREEN.take();
        assert!(drawn.contains("[=======>"), "{drawn}");
        assert!(drawn.contains("5/20 25% eta ") && drawn.contains("step 5/20"), "{drawn}");

        display.update(&update(6.0, None, "who knows"));
        let drawn = SCREEN.take();
        assert!(drawn.contains(" 6 who knows"), "{drawn}");

        let hidden = display.hide_bar();
        SCREEN.take();
        display.update(&update(7.0, None, "meanwhile"));
        assert_eq!(SCREEN.take(), "", "nothing is drawn over a question");
        drop(hidden);
        assert!(SCREEN.take().contains(" 7 meanwhile"));
        display.update(&update(9.0, Some(10.0), "nearly"));
        SCREEN.take();
        display.end();
        let drawn = SCREEN.take();
        assert!(drawn.contains("9/10 90% in ") && drawn.contains("nearly"), "{drawn}");
    }

    #[test]
    fn a_log_record_is_one_line() {
        let record = LogRecord::new(Level::Warning, Json::string("two\nlines"));
        assert_eq!(log_line(&record), "[warning] two lines");
        assert_eq!(log_line(&record.with_logger("disk\x1b[2J")), "[warning] disk [2J: two lines");
        let record = LogRecord::new(Level::Error, Json::parse("{\"free\":\n0}").unwrap());
        assert_eq!(log_line(&record), "[error] {\"free\": 0}");
    }
}
