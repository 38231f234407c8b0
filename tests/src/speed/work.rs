//! The work of each row, for any contender.

use std::future::poll_fn;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use endpoint::Runtime;

use super::contender::{Caller, Contender, HandlerCount, Leave, Updates};
use super::parts::{Counted, Counter, Timed};
use super::row::{EchoTool, Over, Row, What};
use programs::adapter::{Adapter, start};

/// The text of a round trip.
const TEXT: &str = "the quick brown fox jumps over the lazy dog, again and again";
/// The number of bytes that the pair in memory holds.
const ROOM: usize = 64 * 1024;
/// The number of bytes that the pair in memory holds when the memory of connections is measured.
const SMALL_ROOM: usize = 4 * 1024;
/// The number of updates of one call.
const UPDATES: u64 = 1_000;
/// The number of calls that hang at the same time.
const HANGING: usize = 1_000;
/// The time limit for handlers to begin or to end. After it, they count as never beginning or ending.
const NEVER: Duration = Duration::from_secs(3);

/// The condition that ends a loop: a span of time has passed, or a number of turns is done.
#[derive(Clone)]
struct Until {
    passed: Arc<AtomicBool>,
    turns: u64,
}

impl Until {
    /// Ends a loop after `span`. A thread watches the clock, since reading the clock in each turn would affect the number.
    fn after(span: Duration) -> Self {
        let passed = Arc::new(AtomicBool::new(false));
        let setter = Arc::clone(&passed);
        thread::spawn(move || {
            thread::sleep(span);
            setter.store(true, Ordering::Relaxed);
        });
        Self { passed, turns: u64::MAX }
    }

    fn turns(turns: u64) -> Self {
        Self { passed: Arc::default(), turns }
    }

    fn is_over(&self, done: u64) -> bool {
        done >= self.turns || self.passed.load(Ordering::Relaxed)
    }
}

/// Does the work of `row` for `span`, after a quarter of that to warm up. Calls that are cancelled or dropped are measured only once.
pub(super) fn time<C: Contender>(row: Row, span: Duration) -> Timed {
    C::Runtime::run(Some(row.workers), |adapter| async move {
        let callers = callers::<C>(row, &adapter).await;
        let runtime = adapter.runtime();
        let tasks = Arc::clone(&runtime);
        // The caller is a task as well, since a runtime wakes a task in another way than the future that it blocks on.
        let (value, updates) = start(&*runtime, async move {
            match row.what {
                What::Cancelled => (time_to_end(&callers[0], Leave::Cancel).await, None),
                What::Dropped => (time_to_end(&callers[0], Leave::Drop).await, None),
                What::Connection | What::Call => (None, None),
                What::RoundTrips { .. } | What::InTurn { .. } | What::LongText { .. } | What::Progress => {
                    repeat(&callers, &tasks, row.what, Until::after(span / 4)).await;
                    let begin = Instant::now();
                    let done = repeat(&callers, &tasks, row.what, Until::after(span)).await;
                    let rate = done.operations as f64 / begin.elapsed().as_secs_f64();
                    let updates = (row.what == What::Progress).then_some(done.updates);
                    let value = if let What::LongText { bytes, .. } = row.what { rate * bytes as f64 / 1e6 } else { rate };
                    (Some(value), updates)
                }
            }
        })
        .await;
        Timed { value, updates, peak_kib: peak_kib() }
    })
}

/// Makes the connections of `row`, and returns the calling end of each.
async fn callers<C: Contender>(row: Row, adapter: &C::Runtime) -> Vec<C::Caller> {
    let (What::RoundTrips { connections, .. } | What::InTurn { connections }) = row.what else {
        return vec![caller::<C>(row, adapter, ROOM).await];
    };
    let room = if connections == 1 { ROOM } else { SMALL_ROOM };
    let mut callers = Vec::with_capacity(connections);
    for _ in 0..connections {
        callers.push(caller::<C>(row, adapter, room).await);
    }
    callers
}

async fn caller<C: Contender>(row: Row, adapter: &C::Runtime, room: usize) -> C::Caller {
    match row.over {
        Over::Duplex => C::duplex(adapter, room).await,
        Over::ChildStdio => C::child(adapter, super::command::serving(&C::about().name)).await,
    }
}

/// Counts the allocations of one operation of `row`, or, in the rows of memory, its bytes on the heap.
pub(super) fn count<C: Contender>(row: Row, counter: Counter) -> Option<Counted> {
    match row.what {
        What::RoundTrips { .. } | What::InTurn { .. } | What::LongText { .. } | What::Progress => {
            let run = |turns| {
                let mut done = 0;
                let allocated = counter(&mut || done = operate::<C>(row, turns));
                (allocated, done as f64)
            };
            // Both runs include the same allocations for the connection, so their difference has only those of the operations.
            let ((before, few), (after, many)) = (run(20), run(120));
            let each = |before: u64, after: u64| (after - before) as f64 / (many - few);
            Some(Counted { allocations: Some(each(before.count, after.count)), bytes: each(before.bytes, after.bytes) })
        }
        What::Connection => weigh::<C>(counter, (100, 0), (300, 0)),
        What::Call => weigh::<C>(counter, (1, 300), (1, 900)),
        What::Cancelled | What::Dropped => None,
    }
}

/// Does the work of `row` `turns` times, on new connections. Returns the number of operations.
pub(super) fn operate<C: Contender>(row: Row, turns: u64) -> u64 {
    // A single caller makes 100 calls in each turn, so that its number of calls is not much smaller than that of 256 callers.
    let turns = if let What::RoundTrips { connections: 1, callers: 1, .. } = row.what { turns * 100 } else { turns };
    C::Runtime::run(Some(1), |adapter| async move {
        let callers = callers::<C>(row, &adapter).await;
        repeat(&callers, &adapter.runtime(), row.what, Until::turns(turns)).await.operations
    })
}

/// Measures the peak of the heap with `less` and with `more`, each a number of connections and of calls on each connection. Returns the
/// difference in bytes, divided by the number of additional connections or calls. `None` if not all calls began.
fn weigh<C: Contender>(counter: Counter, less: (usize, usize), more: (usize, usize)) -> Option<Counted> {
    let mut all_begun = true;
    let mut peak = |(connections, calls)| counter(&mut || all_begun &= hold::<C>(connections, calls)).most as f64;
    let (peak_of_less, peak_of_more) = (peak(less), peak(more));
    let bytes = (peak_of_more - peak_of_less) / ((more.0 + more.1) - (less.0 + less.1)) as f64;
    all_begun.then_some(Counted { allocations: None, bytes })
}

/// Opens connections, makes hanging calls on each, and closes all of them. Returns `false` if not all calls began.
fn hold<C: Contender>(connections: usize, calls: usize) -> bool {
    C::Runtime::run(Some(1), |adapter| async move {
        let before = HandlerCount::begun();
        let mut open = Vec::new();
        for _ in 0..connections {
            let caller = C::duplex(&adapter, SMALL_ROOM).await;
            // This call makes the connection allocate every buffer.
            caller.echo(TEXT, EchoTool::Inline).await;
            let mut hanging = Vec::new();
            for _ in 0..calls {
                hanging.push(caller.hang(Leave::Drop).await);
            }
            open.push((caller, hanging));
        }
        becomes_true(|| HandlerCount::begun() - before == connections * calls).await
    })
}

/// The amount of work that was done.
#[derive(Default)]
struct Done {
    operations: u64,
    updates: Updates,
}

async fn repeat<C: Caller>(connections: &[C], runtime: &Arc<dyn Runtime>, what: What, until: Until) -> Done {
    let mut done = Done::default();
    match what {
        What::RoundTrips { callers, tool, .. } => {
            let all = connections.iter().flat_map(|connection| iter::repeat_n(connection, callers));
            let tasks: Vec<_> = all.map(|caller| start(&**runtime, round_trips(caller.clone(), tool, until.clone()))).collect();
            for task in tasks {
                done.operations += task.await;
            }
        }
        What::InTurn { .. } => {
            let mut turns = 0;
            while !until.is_over(turns) {
                for connection in connections {
                    round_trip(connection, EchoTool::Task).await;
                    done.operations += 1;
                }
                turns += 1;
            }
        }
        What::LongText { carried, bytes } => {
            while !until.is_over(done.operations) {
                let arrived = connections[0].carry(carried, bytes).await;
                assert!(arrived >= bytes, "{arrived} of {bytes} bytes arrived");
                done.operations += 1;
            }
        }
        What::Progress => {
            let mut calls = 0;
            while !until.is_over(calls) {
                done.updates.add(connections[0].report(UPDATES).await);
                calls += 1;
            }
            done.operations = done.updates.heard;
        }
        What::Cancelled | What::Dropped | What::Connection | What::Call => {}
    }
    done
}

async fn round_trips<C: Caller>(caller: C, tool: EchoTool, until: Until) -> u64 {
    let mut done = 0;
    while !until.is_over(done) {
        round_trip(&caller, tool).await;
        done += 1;
    }
    done
}

async fn round_trip<C: Caller>(caller: &C, tool: EchoTool) {
    let arrived = caller.echo(TEXT, tool).await;
    assert_eq!(arrived, TEXT.len(), "the text came back");
}

/// Makes hanging calls, and ends them. Returns the number of milliseconds until all have ended, at this end and in their handlers. `None`
/// if they do not all begin and end in time.
async fn time_to_end<C: Caller>(caller: &C, leave: Leave) -> Option<f64> {
    let mut calls = Vec::new();
    for _ in 0..HANGING {
        calls.push(caller.hang(leave).await);
    }
    if !becomes_true(|| HandlerCount::begun() == HANGING).await {
        return None;
    }
    let begin = Instant::now();
    match leave {
        Leave::Cancel => C::cancel(calls).await,
        Leave::Drop => drop(calls),
    }
    becomes_true(|| HandlerCount::ended() == HANGING).await.then(|| begin.elapsed().as_secs_f64() * 1e3)
}

/// Waits until a condition holds. Returns `false` if it does not hold within [`NEVER`].
async fn becomes_true(is_true: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !is_true() {
        if begin.elapsed() > NEVER {
            return false;
        }
        yield_now().await;
    }
    true
}

async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The peak memory of this process in KiB, if the system provides it.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix("kB")?.trim().parse().ok()
}
